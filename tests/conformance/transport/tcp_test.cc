#include "tests/conformance/transport/link_test.h"
#include "transport/p2p/tcp/backend.h"

namespace longhaul::transport {

BackendUnderTest UnderTest() {
  return {
      .name = "tcp",
      .create = [] { return tcp::CreateTransport({.bind_address = "127.0.0.1:0"}); },
      .create_backend = [] { return tcp::NewBackend({.bind_address = "127.0.0.1:0"}); },
      .nobody = "127.0.0.1:1",
      .is_stream = true,
  };
}

}  // namespace longhaul::transport
