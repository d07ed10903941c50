"""Read the convolutions of OpenVINO IR."""
