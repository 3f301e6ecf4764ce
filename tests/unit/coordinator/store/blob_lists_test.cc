#include "coordinator/store/blob_lists.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/hash.h"
#include "run/data/data_set.h"
#include "run/published/weights.h"
#include "tests/support/temp_dir.h"

namespace longhaul::coordinator {
namespace {

using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

const std::string kHash = Sha256Hex("a chunk"), kMaskHash = Sha256Hex("a mask");

data::Source SetAt(const std::string& folder, const std::string& file) {
  data::Source source{.folder = folder, .weight = 1, .set = {}};
  source.set.vocabulary = 256;
  source.set.chunk_bytes = 4096;
  source.set.training.shards = {
      {.tokens = 100,
       .ids = {.file = file, .offset = 0, .bytes = 200, .chunks = kHash},
       .mask = data::HashedFile{.file = "m.mask", .offset = 0, .bytes = 13, .chunks = kMaskHash}}};
  return source;
}

class BlobListsTest : public ::testing::Test {
 protected:
  std::string Stored(const std::string& text) {
    const std::string sha256 = Sha256Hex(text);
    const auto upload = blobs_->StartUpload(sha256, text.size()).value();
    EXPECT_TRUE(upload->Append(text).ok());
    EXPECT_TRUE(upload->Finish().ok());
    return sha256;
  }

  const testing::TempDir folder_;
  const std::unique_ptr<BlobStore> blobs_ = BlobStore::Open(folder_.path() + "/blobs").value();
  const std::unique_ptr<BlobIndex> index_ = BlobIndex::Open(folder_.path()).value();
  BlobLists lists_{blobs_.get(), index_.get()};
};

TEST_F(BlobListsTest, SetsAtAddressesNameFilesAndOthersNameChunks) {
  const std::string list =
      Stored(data::ToJson({.sources = {SetAt("/here", "a.bin"), SetAt("s3://bucket/set", "a b.bin"),
                                       SetAt("https://files.example/set/", "a b.bin")}}));
  EXPECT_TRUE(lists_.NamesBlob({list}, kHash));
  EXPECT_TRUE(lists_.NamesBlob({list}, kMaskHash));
  EXPECT_FALSE(lists_.NamesBlob({list}, list));
  EXPECT_THAT(lists_.Read(list)->objects,
              UnorderedElementsAre("s3://bucket/set/a b.bin", "s3://bucket/set/m.mask",
                                   "https://files.example/set/a%20b.bin",
                                   "https://files.example/set/m.mask"));
  EXPECT_TRUE(lists_.NamesObject(list, "s3://bucket/set/a b.bin").value());
  EXPECT_FALSE(lists_.NamesObject(list, "s3://bucket/set/b.bin").value());
}

TEST_F(BlobListsTest, NamesThatLeadOutOfTheFolderAreRefused) {
  const std::string list = Stored(data::ToJson({.sources = {SetAt("s3://bucket/set", "/a.bin")}}));
  EXPECT_TRUE(absl::IsInvalidArgument(lists_.Read(list).status()));
  EXPECT_FALSE(lists_.NamesBlob({list}, kMaskHash));
}

TEST_F(BlobListsTest, ModelsAtAddressesNameTheirFiles) {
  published::Weights weights{.config_json = "{}", .tensors = {}, .files = {}};
  weights.from = "hf://org/model@0123456789abcdef/";
  weights.versions = {{.name = "model.safetensors", .bytes = 1000, .tag = "\"one\""}};
  weights.tensors = {{.name = "w",
                      .type = "F32",
                      .shape = {2},
                      .file = "model.safetensors",
                      .offset = 8,
                      .bytes = 8,
                      .sha256 = ""}};
  const std::string list = Stored(published::ToJson(weights));
  ASSERT_TRUE(lists_.Read(list).ok()) << lists_.Read(list).status();
  EXPECT_THAT(lists_.Read(list)->objects,
              UnorderedElementsAre("hf://org/model@0123456789abcdef/model.safetensors"));
  EXPECT_EQ(lists_.Read(list)->size(), 0u);
}

TEST_F(BlobListsTest, WhatIsNoListNamesNothing) {
  EXPECT_TRUE(absl::IsInvalidArgument(lists_.Read(Stored("a text")).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(lists_.NamesObject(Stored("a text"), "s3://b/a").status()));
  EXPECT_TRUE(absl::IsNotFound(lists_.Read(Sha256Hex("nothing")).status()));
  EXPECT_FALSE(lists_.NamesBlob({Stored("a text"), Sha256Hex("nothing")}, kHash));
}

// Nine of them, which once pushed each other out of a cache of eight: each is read once.
TEST_F(BlobListsTest, AListIsReadOnce) {
  std::vector<std::string> lists;
  for (int i = 0; i < 9; ++i) {
    lists.push_back(Stored(data::ToJson({.sources = {SetAt("/here", fmt::format("{}.bin", i))}})));
  }
  EXPECT_TRUE(lists_.NamesBlob(lists, kHash));
  for (const std::string& list : lists) {
    std::filesystem::remove(blobs_->PathOf(list));
    EXPECT_TRUE(lists_.NamesBlob({list}, kHash));
  }
}

TEST_F(BlobListsTest, ATooLargeOneIsRefusedBeforeItIsRead) {
  const std::string list = Sha256Hex("huge");
  std::ofstream(blobs_->PathOf(list)).put('{');
  std::filesystem::resize_file(blobs_->PathOf(list), uint64_t{1} << 30);  // a hole
  EXPECT_THAT(std::string(Message(lists_.Read(list).status())), HasSubstr("expected at most"));
}

}  // namespace
}  // namespace longhaul::coordinator
