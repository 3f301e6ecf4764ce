// Any bytes as a token file: refused, or every window of it can be read and holds known tokens.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "base/fuzz/memory_file.h"
#include "base/fuzz/target.h"
#include "base/hash.h"
#include "run/tokens/token_file.h"

LH_FUZZ_TARGET(token_file) {
  using longhaul::TokenFile;
  static longhaul::fuzz::MemoryFile file;
  // With the right hash, or nothing would get past it.
  constexpr size_t kHash = 64, kTokens = 96;
  std::string bytes(reinterpret_cast<const char*>(data), size);
  if (size >= kTokens) {
    const std::string hash = absl::HexStringToBytes(longhaul::Sha256Hex(bytes.substr(kTokens)));
    bytes.replace(kHash, hash.size(), hash);
  }
  file.Set(bytes.data(), bytes.size());
  bool taken = false;
  for (const bool verify : {false, true}) {
    const auto tokens = TokenFile::Open(file.path(), verify);
    if (!tokens.ok()) continue;
    taken = true;
    for (const uint32_t context : {1u, 3u, 1024u}) {
      std::vector<int32_t> inputs(context), targets(context);
      const auto check = [&](const std::vector<int32_t>& ids) {
        const auto known = [&](int32_t id) {
          return id >= 0 && static_cast<uint32_t>(id) < tokens->info().vocabulary;
        };
        if (verify && !std::all_of(ids.begin(), ids.end(), known)) std::abort();
      };
      if (const uint64_t windows = tokens->TrainingWindows(context); windows > 0) {
        for (const uint64_t window : {uint64_t{0}, windows - 1}) {
          tokens->ReadTrainingWindow(window, context, inputs, targets);
          check(inputs);
          check(targets);
        }
        if (longhaul::TrainingWindowOf(size, size * 7, windows) >= windows) std::abort();
      }
      if (const uint64_t windows = tokens->ValidationWindows(context); windows > 0) {
        tokens->ReadValidationWindow(windows - 1, context, inputs, targets);
        check(inputs);
        check(targets);
      }
    }
  }
  return taken;
}
