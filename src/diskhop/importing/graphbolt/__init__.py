"""OnDiskDataset folders of DGL GraphBolt."""
