#include "tests/conformance/transport/link_test.h"
#include "transport/p2p/ucx/backend.h"

namespace longhaul::transport {

BackendUnderTest UnderTest() {
  return {
      .name = "ucx",
      // The suite also dials links that nobody expects.
      .create =
          [] { return ucx::CreateTransport({.bind_address = "127.0.0.1:0", .admits_all = true}); },
      .create_backend =
          [] { return ucx::NewBackend({.bind_address = "127.0.0.1:0", .admits_all = true}); },
      .nobody = "127.0.0.1:1",
  };
}

}  // namespace longhaul::transport
