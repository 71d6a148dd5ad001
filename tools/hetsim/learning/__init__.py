"""Training of the policy `learned`: families of scenarios, episodes, and gradients."""
