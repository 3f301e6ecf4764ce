// Any text as a join token: refused, or it is written again as it was.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/fuzz/target.h"
#include "proto/identity/join_token.h"

LH_FUZZ_TARGET(join_token) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto token = longhaul::ParseJoinToken(text);
  if (token.ok() && longhaul::ToString(*token) != text) std::abort();
  return token.ok();
}
