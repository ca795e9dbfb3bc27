"""All that happens between ``iter()`` and your batch."""
