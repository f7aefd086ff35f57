"""What lemni costs, measured beside a peer in the same run: ratios travel, absolutes do not."""
