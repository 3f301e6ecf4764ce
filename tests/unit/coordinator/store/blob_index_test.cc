// What lists name and members have sent, across restarts.
#include "coordinator/store/blob_index.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "absl/strings/escaping.h"
#include "base/hash.h"
#include "tests/support/temp_dir.h"

namespace longhaul::coordinator {
namespace {

ListNames NamesOf(const std::vector<std::string>& blobs,
                  const std::set<std::string>& objects = {}) {
  ListNames names;
  for (const std::string& blob : blobs) names.blobs += absl::HexStringToBytes(blob);
  names.objects = objects;
  return names;
}

class BlobIndexTest : public ::testing::Test {
 protected:
  void Reopen() {
    index_.reset();
    index_ = BlobIndex::Open(folder_.path()).value();
  }

  const testing::TempDir folder_;
  std::unique_ptr<BlobIndex> index_ = BlobIndex::Open(folder_.path()).value();
  const std::string list_ = Sha256Hex("a list"), other_ = Sha256Hex("another"),
                    chunk_ = Sha256Hex("a chunk"), chunk2_ = Sha256Hex("another chunk");
};

TEST_F(BlobIndexTest, ListsNameWhatTheyName) {
  EXPECT_EQ(index_->NumberOf(list_).value(), 0);
  const int64_t number =
      index_->AddList(list_, NamesOf({chunk_, chunk2_, chunk_}, {"https://h.example/a"})).value();
  const int64_t other = index_->AddList(other_, NamesOf({chunk2_})).value();
  EXPECT_NE(number, other);
  EXPECT_EQ(index_->AddList(list_, NamesOf({})).value(), number);  // it stays as it is
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(index_->NumberOf(list_).value(), number);
    EXPECT_TRUE(index_->NamesBlob({number}, chunk_).value());
    EXPECT_FALSE(index_->NamesBlob({other}, chunk_).value());
    EXPECT_TRUE(index_->NamesBlob({number, other}, chunk2_).value());
    EXPECT_FALSE(index_->NamesBlob({}, chunk2_).value());
    EXPECT_FALSE(index_->NamesBlob({number, other}, list_).value());
    EXPECT_FALSE(index_->NamesBlob({number}, "no hash").value());
    EXPECT_TRUE(index_->NamesObject({number}, "https://h.example/a").value());
    EXPECT_FALSE(index_->NamesObject({other}, "https://h.example/a").value());
    Reopen();
  }
}

// A number that was used again would give a newer list the names of the older one.
TEST_F(BlobIndexTest, AListThatIsGoneNamesNothing) {
  const int64_t number = index_->AddList(list_, NamesOf({chunk_})).value();
  ASSERT_TRUE(index_->Forget(list_).ok());
  EXPECT_EQ(index_->NumberOf(list_).value(), 0);
  const int64_t next = index_->AddList(other_, NamesOf({chunk2_})).value();
  EXPECT_GT(next, number);
  ASSERT_TRUE(index_->Tidy().ok());
  EXPECT_FALSE(index_->NamesBlob({number}, chunk_).value());
  EXPECT_TRUE(index_->NamesBlob({next}, chunk2_).value());
}

TEST_F(BlobIndexTest, MembersBytesCountUntilTheBlobIsGone) {
  EXPECT_EQ(index_->BytesOf("bob").value(), 0u);
  ASSERT_TRUE(index_->NoteSent("bob", chunk_, 5000).ok());
  ASSERT_TRUE(index_->NoteSent("bob", chunk_, 5000).ok());
  ASSERT_TRUE(index_->NoteSent("bob", chunk2_, 7000).ok());
  ASSERT_TRUE(index_->NoteSent("eve", chunk_, 5000).ok());
  EXPECT_EQ(index_->BytesOf("bob").value(), 12'000u);
  Reopen();
  EXPECT_EQ(index_->BytesOf("bob").value(), 12'000u);
  EXPECT_TRUE(index_->HasSent("eve", chunk_).value());
  EXPECT_FALSE(index_->HasSent("eve", chunk2_).value());
  ASSERT_TRUE(index_->Forget(chunk_).ok());
  EXPECT_EQ(index_->BytesOf("bob").value(), 7000u);
  EXPECT_EQ(index_->BytesOf("eve").value(), 0u);
}

TEST_F(BlobIndexTest, ADamagedOneIsMadeAnew) {
  ASSERT_TRUE(index_->NoteSent("bob", chunk_, 5000).ok());
  index_.reset();
  std::ofstream(folder_.path() + "/blob-index.db", std::ios::binary) << std::string(100'000, 'x');
  Reopen();
  EXPECT_EQ(index_->BytesOf("bob").value(), 0u);
  EXPECT_TRUE(index_->AddList(list_, NamesOf({chunk_})).ok());
}

}  // namespace
}  // namespace longhaul::coordinator
