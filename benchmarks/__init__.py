"""What shellsession costs, measured side by side with the floor and with what users would pick instead."""
