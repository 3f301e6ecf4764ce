#include "base/private_files.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <string>

#include "base/file.h"
#include "tests/support/temp_dir.h"

namespace longhaul {
namespace {

unsigned ModeOf(const std::string& path) {
  struct stat info {};
  EXPECT_EQ(::stat(path.c_str(), &info), 0) << path;
  return info.st_mode & 07777;
}

// Puts the umask back that other tests run with.
class PrivateFilesTest : public ::testing::Test {
 protected:
  PrivateFilesTest() : before_(::umask(022)) {}
  ~PrivateFilesTest() override { ::umask(before_); }

  const mode_t before_;
  const testing::TempDir folder_;
};

TEST_F(PrivateFilesTest, WhatAProgramMakesIsItsOwn) {
  KeepFilesPrivate();
  const std::string folder = folder_.path() + "/a/b", file = folder + "/file";
  ASSERT_TRUE(MakeDirectories(folder).ok());
  ASSERT_TRUE(WriteFileAtomic(file, "text").ok());
  EXPECT_EQ(ModeOf(folder_.path() + "/a"), 0700u);
  EXPECT_EQ(ModeOf(folder), 0700u);
  EXPECT_EQ(ModeOf(file), 0600u);
}

TEST_F(PrivateFilesTest, AFolderThatIsThereIsMadePrivate) {
  const std::string folder = folder_.path() + "/open";
  ASSERT_TRUE(MakeDirectories(folder).ok());
  EXPECT_EQ(ModeOf(folder), 0755u);
  ASSERT_TRUE(MakePrivateDirectories(folder).ok());
  EXPECT_EQ(ModeOf(folder), 0700u);
  ASSERT_TRUE(MakePrivateDirectories(folder + "/new").ok());
  EXPECT_EQ(ModeOf(folder + "/new"), 0700u);
}

TEST_F(PrivateFilesTest, AFolderForEverybodyStays) {
  const std::string folder = folder_.path() + "/tmp";
  ASSERT_TRUE(MakeDirectories(folder).ok());
  ASSERT_EQ(::chmod(folder.c_str(), 01777), 0);
  ASSERT_TRUE(MakePrivateDirectories(folder).ok());
  EXPECT_EQ(ModeOf(folder), 01777u);
  ASSERT_TRUE(WriteFileAtomic(folder + "/file", "").ok());
  EXPECT_FALSE(MakePrivateDirectories(folder + "/file").ok());
}

}  // namespace
}  // namespace longhaul
