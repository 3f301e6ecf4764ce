// Which files of this machine a list of data sets reads, on a worker with and without roots.
#include "worker/epoch/chunk_fetcher.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/file.h"
#include "base/hash.h"
#include "tests/support/temp_dir.h"

namespace longhaul::worker {
namespace {

class FetchFromPlaceTest : public ::testing::Test {
 protected:
  FetchFromPlaceTest() {
    EXPECT_TRUE(MakeDirectories(root_).ok());
    EXPECT_TRUE(WriteFileAtomic(root_ + "/a.bin", "tokens").ok());
    EXPECT_TRUE(WriteFileAtomic(folder_.path() + "/key", "secret").ok());
  }
  // Reads two bytes that a list says to be `guess`.
  static StatusOr<std::vector<std::byte>> Read(const RootFolders* roots, const std::string& folder,
                                               const std::string& file, const std::string& guess,
                                               uint64_t offset = 0) {
    data::Source source{.folder = folder, .weight = 1, .set = {}};
    source.set.chunk_bytes = 4096;
    const data::HashedFile of_list{
        .file = file, .offset = offset, .bytes = 2, .chunks = Sha256Hex(guess)};
    return FetchFromPlace(roots, nullptr)(source, of_list, 0, [] { return false; });
  }

  const ::longhaul::testing::TempDir folder_;
  const std::string root_ = folder_.path() + "/root";
  const RootFolders none_;
};

TEST_F(FetchFromPlaceTest, ReadsBeneathItsRoots) {
  const RootFolders roots = RootFolders::Open({root_}).value();
  EXPECT_TRUE(Read(&roots, root_, "a.bin", "to").ok());
  EXPECT_TRUE(Read(&roots, root_, "a.bin", "ns", 4).ok());
  EXPECT_TRUE(absl::IsDataLoss(Read(&roots, root_, "a.bin", "xx").status()));
  for (const uint64_t beyond : {uint64_t{5}, uint64_t{1} << 40, ~uint64_t{0}}) {
    EXPECT_TRUE(absl::IsDataLoss(Read(&roots, root_, "a.bin", "xx", beyond).status())) << beyond;
  }
}

TEST_F(FetchFromPlaceTest, ElsewhereARightGuessIsAsGoodAsAWrongOne) {
  const RootFolders roots = RootFolders::Open({root_}).value();
  for (const RootFolders* of_worker : {&roots, &none_, static_cast<const RootFolders*>(nullptr)}) {
    for (const std::string& folder : {folder_.path(), root_ + "/.."}) {
      const Status right = Read(of_worker, folder, "key", "se").status();
      EXPECT_TRUE(absl::IsNotFound(right));
      EXPECT_EQ(right, Read(of_worker, folder, "key", "xx").status());
      std::string nothing(Message(Read(of_worker, folder, "nothing", "xx").status()));
      nothing.replace(nothing.find("/nothing"), 8, "/key");
      EXPECT_EQ(Message(right), nothing);
    }
  }
  EXPECT_TRUE(absl::IsNotFound(Read(&none_, root_, "a.bin", "to").status()));
}

}  // namespace
}  // namespace longhaul::worker
