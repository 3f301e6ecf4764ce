#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string_view>

#include "run/file/run_spec.h"

namespace longhaul {
namespace {

class DataFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "data[1]XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    std::filesystem::create_directory(folder_ + "/corpus");
    for (const char* name : {"b.txt", "a.txt", "corpus/c.txt"}) {
      std::ofstream(folder_ + "/" + name) << "text";
    }
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  StatusOr<std::vector<std::string>> Expand(std::vector<std::string> globs) {
    RunSpec spec;
    spec.data.text = std::move(globs);
    return ExpandDataFiles(spec, folder_);
  }
  std::string folder_;  // with brackets: it is a name, not a pattern
};

TEST_F(DataFiles, SortedWithoutDoubles) {
  const auto files = Expand({"*.txt", "corpus/*", "a.txt", folder_ + "/b.txt"});
  // The absolute name goes through the glob as the user wrote it, so its brackets are a pattern.
  ASSERT_FALSE(files.ok());
  const auto relative = Expand({"*.txt", "corpus/*", "a.txt"});
  ASSERT_TRUE(relative.ok()) << relative.status();
  EXPECT_EQ(*relative, (std::vector<std::string>{folder_ + "/a.txt", folder_ + "/b.txt",
                                                 folder_ + "/corpus/c.txt"}));
}

TEST_F(DataFiles, EveryProblemIsNamed) {
  const auto files = Expand({"none*.txt", "a.txt", "corpus", "missing.txt"});
  ASSERT_FALSE(files.ok());
  EXPECT_EQ(files.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(std::string(Message(files.status())),
            "data.text: 'none*.txt' matches no file in " + folder_ + "\n" + "data.text: " +
                folder_ + "/corpus: is a folder; name the files in it, such as " + folder_ +
                "/corpus/*.txt\n" + "data.text: 'missing.txt' matches no file in " + folder_);
}

TEST_F(DataFiles, AListInQuotesIsOneText) {
  EXPECT_EQ(std::string(Message(Expand({"['a.txt']"}).status())),
            "data.text: '['a.txt']' matches no file in " + folder_ +
                "; a list stands without quotes around it");
}

TEST(DataSize, TrainingAndValidationWindows) {
  RunSpec spec;
  spec.model.context = 99;
  spec.validation.share = 0.5;
  EXPECT_TRUE(CheckDataSize(spec, 200).ok());
  const Status none = CheckDataSize(spec, 0);
  EXPECT_EQ(none.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(std::string(Message(none)),
            "data.text: 0 tokens to train on (0 in all) are less than one window of 100 "
            "(model.context + 1); give more text or lower model.context\n"
            "data.text: 0 tokens for validation (share 0.5 of 0) are less than one window of 100 "
            "(model.context + 1); give more text, raise validation.share or set validation.every "
            "to 0");
  spec.validation.share = 0.01;
  EXPECT_NE(Message(CheckDataSize(spec, 200)).find("2 tokens for validation"),
            std::string_view::npos);
  spec.validation.every = 0;
  EXPECT_TRUE(CheckDataSize(spec, 200).ok());
}

}  // namespace
}  // namespace longhaul
