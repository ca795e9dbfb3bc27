"""What happens between ``iter()`` and your batch."""
