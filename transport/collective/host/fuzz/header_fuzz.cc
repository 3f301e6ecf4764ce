// Any bytes as what a stranger may write on a rank's socket (a hello) and as what comes before the
// bytes of an exchange.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>

#include "base/fuzz/target.h"
#include "transport/collective/host/header.h"

LH_FUZZ_TARGET(collective_header) {
  using namespace longhaul::collective::host;  // NOLINT(google-build-using-namespace)
  const std::string secret(kHelloSecretBytes, 's');
  std::array<std::byte, kHelloBytes> hello{};
  std::array<std::byte, kHeaderBytes> header{};
  const auto bytes = std::as_bytes(std::span(data, size));
  std::ranges::copy(bytes.first(std::min(size, hello.size())), hello.begin());
  std::ranges::copy(bytes.first(std::min(size, header.size())), header.begin());
  const auto rank = DecodeHello(hello, secret);
  if (rank.ok() && EncodeHello(secret, *rank) != hello) std::abort();
  const auto decoded = DecodeHeader(header);
  if (decoded.ok()) {
    if (EncodeHeader(*decoded) != header) std::abort();
    if (ToString(decoded->call).empty()) std::abort();
  }
  return rank.ok() || decoded.ok();
}
