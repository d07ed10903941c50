"""Read programs of torch.export."""
