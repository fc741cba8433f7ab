DROP TABLE fencing_fence;
