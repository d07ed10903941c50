"""A fleet: candidates built here and measured on the servers of a TVM RPC tracker."""
