local publish, receivers = 'PUBLISH', 'NUMSUB'
