// The golden files' own test: what is changed without a new version must be found.
#include "tests/support/golden.h"

#include <gmock/gmock.h>

#include "base/file.h"
#include "tests/support/temp_dir.h"

namespace longhaul::testing {
namespace {

using ::testing::HasSubstr;

class GoldenTest : public ::testing::Test {
 protected:
  std::string Complaint(uint32_t version, std::string_view bytes, bool update = false) const {
    return GoldenComplaint(folder_.path(), "format:a,b", version, bytes, update);
  }
  std::string File(const std::string& name) const {
    return ReadFile(folder_.path() + "/" + name).value_or("none");
  }

 private:
  const TempDir folder_;
};

TEST_F(GoldenTest, AMissingFileIsSaidAndWrittenOnlyWhenAsked) {
  EXPECT_THAT(Complaint(1, "bytes"), HasSubstr("there is none: call this program with --update"));
  EXPECT_EQ(File("format_a_b.v1"), "none");
  EXPECT_EQ(Complaint(1, "bytes", /*update=*/true), "");
  EXPECT_EQ(File("format_a_b.v1"), "bytes");
  EXPECT_EQ(Complaint(1, "bytes"), "");
}

TEST_F(GoldenTest, ChangedBytesDemandANewVersion) {
  ASSERT_EQ(Complaint(1, "bytes", /*update=*/true), "");
  for (const bool update : {false, true}) {
    EXPECT_THAT(Complaint(1, "byteS", update), HasSubstr("from byte 4 on. Raise the version"));
    EXPECT_THAT(Complaint(1, "byte", update), HasSubstr("expected 5 bytes"));
    EXPECT_THAT(Complaint(1, "bytes!", update), HasSubstr("got 6 with"));
    EXPECT_EQ(File("format_a_b.v1"), "bytes");
  }
  EXPECT_EQ(Complaint(2, "byteS", /*update=*/true), "");
  EXPECT_EQ(File("format_a_b.v2"), "byteS");
  EXPECT_EQ(File("format_a_b.v1"), "bytes");
}

}  // namespace
}  // namespace longhaul::testing
