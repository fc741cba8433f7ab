local publish, receivers = 'SPUBLISH', 'SHARDNUMSUB' -- at the node of the slot, in Cluster
