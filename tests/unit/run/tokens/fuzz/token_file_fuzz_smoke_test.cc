#include <gtest/gtest.h>

#include "base/file.h"
#include "run/tokens/token_file.h"
#include "tests/support/fuzz_smoke.h"
#include "tests/support/temp_dir.h"

namespace longhaul {
namespace {

TEST(TokenFileFuzzSmokeTest, DamagedFiles) {
  const testing::TempDir folder;
  const std::string text = folder.path() + "/text", tokens = folder.path() + "/tokens";
  ASSERT_TRUE(WriteFileAtomic(text, "a text of some tokens, and a few more of them").ok());
  ASSERT_TRUE(WriteTokenFile({text}, "bytes", 0.2, tokens).ok());
  testing::FuzzSmoke({ReadFile(tokens).value()}, 20'000);
}

}  // namespace
}  // namespace longhaul
