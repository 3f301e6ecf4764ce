// A new folder for one test. The constructor creates the folder, or fails the current test. The
// destructor removes the folder with its contents.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "base/file.h"

namespace longhaul::testing {

class TempDir {
 public:
  TempDir() : path_(::testing::TempDir() + "longhaul-" + RandomUuid()) {
    EXPECT_TRUE(MakeDirectories(path_).ok());
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace longhaul::testing
