"""What tests, simulations and demonstrations hold a broker against. No part of the package."""
