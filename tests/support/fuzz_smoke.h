// A short, repeatable run of a fuzz target in the ordinary tests: seeds with a few bytes changed,
// cut or doubled, the same ones each time.
#ifndef LONGHAUL_TESTS_SUPPORT_FUZZ_SMOKE_H_
#define LONGHAUL_TESTS_SUPPORT_FUZZ_SMOKE_H_

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <string_view>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace longhaul::testing {

inline void FuzzSmoke(const std::vector<std::string>& seeds, int rounds,
                      std::string_view telling = "") {
  std::mt19937 random(1);  // NOLINT(bugprone-random-generator-seed): the same bytes each time
  const auto run = [](const std::string& bytes) {
    LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
  };
  run("");
  for (const std::string& seed : seeds) run(seed);
  for (int i = 0; i < rounds; ++i) {
    std::string bytes = seeds[static_cast<size_t>(i) % seeds.size()];
    for (unsigned changes = 1 + random() % 4; changes > 0 && !bytes.empty(); --changes) {
      const size_t at = random() % bytes.size();
      switch (random() % 4) {
        case 0:
          bytes[at] = static_cast<char>(bytes[at] ^ 1 << random() % 8);
          break;
        case 1:
          bytes[at] =
              telling.empty() ? static_cast<char>(random()) : telling[random() % telling.size()];
          break;
        case 2:
          bytes.erase(at, random() % 8);
          break;
        default:
          bytes.insert(at, bytes.substr(random() % bytes.size(), random() % 16));
      }
    }
    run(bytes);
  }
}

}  // namespace longhaul::testing

#endif  // LONGHAUL_TESTS_SUPPORT_FUZZ_SMOKE_H_
