"""What a model cannot do, and certificates that show it (floor 3)."""
