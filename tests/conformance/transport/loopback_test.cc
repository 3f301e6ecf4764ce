#include "tests/conformance/transport/link_test.h"
#include "transport/p2p/loopback/backend.h"

namespace longhaul::transport {

BackendUnderTest UnderTest() {
  return {
      .name = "loopback",
      .create = [] { return loopback::CreateTransport({}); },
      .create_backend = [] { return loopback::NewBackend({}); },
      .nobody = "loopback:nobody",
  };
}

}  // namespace longhaul::transport
