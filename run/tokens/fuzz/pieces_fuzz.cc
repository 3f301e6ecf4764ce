// Any bytes as the table of a vocabulary's tokens, as a worker fetches it.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/fuzz/target.h"
#include "run/tokens/pieces.h"

LH_FUZZ_TARGET(token_pieces) {
  using namespace longhaul;  // NOLINT(google-build-using-namespace)
  const auto table = TokenPieces::Parse(std::string(reinterpret_cast<const char*>(data), size));
  if (!table.ok()) return false;
  std::vector<std::string> pieces;
  for (uint32_t id = 0; id < table->size(); ++id) pieces.emplace_back(table->Of(id));
  if (!table->Of(table->size()).empty()) std::abort();
  const auto again = TokenPieces::Parse(TokenPieces::Encode(pieces));
  if (!again.ok() || again->size() != table->size()) std::abort();
  for (uint32_t id = 0; id < table->size(); ++id) {
    if (again->Of(id) != pieces[id]) std::abort();
  }
  return true;
}
