#include "tests/support/golden.h"

#include <fmt/core.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <filesystem>

#include "base/file.h"

namespace longhaul::testing {
namespace {

bool g_update = false;

}  // namespace

std::string GoldenComplaint(const std::string& folder, std::string_view name, uint32_t version,
                            std::string_view bytes, bool update) {
  std::string file = fmt::format("{}.v{}", name, version);
  for (char& c : file) {
    if (c == ':' || c == ',' || c == '/') c = '_';
  }
  const std::string path = folder + "/" + file;
  if (!std::filesystem::exists(path)) {
    if (!update) {
      return fmt::format(
          "expected the golden file {} of version {}, and there is none: call this program with "
          "--update, which writes it",
          path, version);
    }
    Status written = MakeDirectories(folder);
    if (written.ok()) written = WriteFileAtomic(path, bytes);
    if (!written.ok()) {
      return std::string(Message(written));
    }
  }
  const StatusOr<std::string> golden = ReadFile(path);
  if (!golden.ok()) return std::string(Message(golden.status()));
  if (*golden == bytes) return "";
  const auto [theirs, ours] = std::ranges::mismatch(*golden, bytes);
  return fmt::format(
      "the bytes of version {} of '{}' changed: expected {} bytes as in {}, got {} with others "
      "from byte {} on. Raise the version, then call this program with --update, which writes the "
      "new version's file only",
      version, name, golden->size(), path, bytes.size(), theirs - golden->begin());
}

void ExpectGolden(const std::string& folder, std::string_view name, uint32_t version,
                  std::string_view bytes) {
  EXPECT_EQ(GoldenComplaint(folder, name, version, bytes, g_update), "");
}

void ExpectGolden(const std::string& folder, std::string_view name, uint32_t version,
                  std::span<const std::byte> bytes) {
  ExpectGolden(folder, name, version,
               std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
}

}  // namespace longhaul::testing

int main(int argc, char** argv) {
  ::testing::InitGoogleMock(&argc, argv);
  for (int k = 1; k < argc; ++k) {
    if (std::string_view(argv[k]) != "--update") {
      fmt::print(stderr, "usage: {} [--update] [GoogleTest's flags]; got '{}'\n", argv[0], argv[k]);
      return 2;
    }
    longhaul::testing::g_update = true;
  }
  return RUN_ALL_TESTS();
}
