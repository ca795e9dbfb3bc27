"""Object stores: reads what lies there, and keeps shards of it on this machine."""
