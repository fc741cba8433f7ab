local publish = 'SPUBLISH' -- to the node of the slot, in Cluster
