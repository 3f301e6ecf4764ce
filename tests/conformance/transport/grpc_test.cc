#include "tests/conformance/transport/link_test.h"
#include "transport/p2p/grpc/backend.h"

namespace longhaul::transport {

BackendUnderTest UnderTest() {
  return {
      .name = "grpc",
      .create = [] { return grpc::CreateTransport({.bind_address = "127.0.0.1:0"}); },
      .create_backend = [] { return grpc::NewBackend({.bind_address = "127.0.0.1:0"}); },
      .nobody = "127.0.0.1:1",
  };
}

}  // namespace longhaul::transport
