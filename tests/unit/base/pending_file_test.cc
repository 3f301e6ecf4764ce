#include "base/pending_file.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "base/file.h"

namespace longhaul {
namespace {

namespace fs = std::filesystem;

class PendingFileTest : public ::testing::Test {
 protected:
  PendingFileTest() : folder_(::testing::TempDir() + "longhaul-pending-" + RandomUuid()) {
    fs::create_directory(folder_);
  }
  ~PendingFileTest() override { fs::remove_all(folder_); }
  std::string path() const { return folder_ + "/file"; }
  const std::string folder_;
};

TEST_F(PendingFileTest, AppearsWholeWhenPublished) {
  ASSERT_TRUE(WriteFileAtomic(path(), "old").ok());
  auto file = PendingFile::Create(path());
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_TRUE((*file)->Append(std::string_view("0123")).ok());
  ASSERT_TRUE((*file)->Append(std::string_view("4567")).ok());
  ASSERT_TRUE((*file)->Overwrite(2, std::as_bytes(std::span("ab", 2))).ok());
  EXPECT_EQ((*file)->size(), 8u);
  EXPECT_FALSE((*file)->Overwrite(7, std::as_bytes(std::span("ab", 2))).ok());
  EXPECT_EQ(ReadFile(path()).value(), "old");
  ASSERT_TRUE((*file)->Publish().ok());
  file->reset();
  EXPECT_EQ(ReadFile(path()).value(), "01ab4567");
}

TEST_F(PendingFileTest, UnpublishedLeavesNothing) {
  {
    auto file = PendingFile::Create(path());
    ASSERT_TRUE(file.ok()) << file.status();
    ASSERT_TRUE((*file)->Append(std::string_view("half")).ok());
    const fs::path temporary = fs::directory_iterator(folder_)->path();
    EXPECT_TRUE(IsPendingFileName(temporary.filename().string())) << temporary;
  }
  EXPECT_TRUE(fs::is_empty(folder_));
  EXPECT_FALSE(IsPendingFileName("file"));
  EXPECT_FALSE(IsPendingFileName("file.tmp-1"));
}

TEST_F(PendingFileTest, MissingFolderIsNotFound) {
  EXPECT_EQ(PendingFile::Create(folder_ + "/none/file").status().code(),
            absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace longhaul
