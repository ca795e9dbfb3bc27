"""The collections behind `MongoImages`."""
