"""What a trained model is for: generate signals, and restore measurements."""
