"""Data that come with hetd: trained weights of the policy `learned`."""
