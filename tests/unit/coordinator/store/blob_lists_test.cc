#include "coordinator/store/blob_lists.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "base/hash.h"
#include "run/data/data_set.h"
#include "run/published/weights.h"
#include "tests/support/temp_dir.h"

namespace longhaul::coordinator {
namespace {

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
  BlobLists lists_{blobs_.get()};
};

TEST_F(BlobListsTest, SetsAtAddressesNameFilesAndOthersNameChunks) {
  const std::string list =
      Stored(data::ToJson({.sources = {SetAt("/here", "a.bin"), SetAt("s3://bucket/set", "a b.bin"),
                                       SetAt("https://files.example/set/", "a b.bin")}}));
  EXPECT_THAT(*lists_.NamedBy(list).value(), UnorderedElementsAre(kHash, kMaskHash));
  EXPECT_THAT(*lists_.ObjectsNamedBy(list).value(),
              UnorderedElementsAre("s3://bucket/set/a b.bin", "s3://bucket/set/m.mask",
                                   "https://files.example/set/a%20b.bin",
                                   "https://files.example/set/m.mask"));
}

TEST_F(BlobListsTest, NamesThatLeadOutOfTheFolderNameNothing) {
  const std::string list = Stored(data::ToJson({.sources = {SetAt("s3://bucket/set", "/a.bin")}}));
  EXPECT_THAT(*lists_.ObjectsNamedBy(list).value(), UnorderedElementsAre("s3://bucket/set/m.mask"));
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
  ASSERT_TRUE(lists_.ObjectsNamedBy(list).ok()) << lists_.ObjectsNamedBy(list).status();
  EXPECT_THAT(*lists_.ObjectsNamedBy(list).value(),
              UnorderedElementsAre("hf://org/model@0123456789abcdef/model.safetensors"));
  EXPECT_TRUE(lists_.NamedBy(list).value()->empty());
}

TEST_F(BlobListsTest, WhatIsNoListNamesNothing) {
  EXPECT_TRUE(absl::IsInvalidArgument(lists_.ObjectsNamedBy(Stored("a text")).status()));
  EXPECT_TRUE(absl::IsNotFound(lists_.ObjectsNamedBy(Sha256Hex("nothing")).status()));
}

}  // namespace
}  // namespace longhaul::coordinator
