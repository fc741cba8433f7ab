local publish = 'PUBLISH'
