#include "coordinator/store/blob_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/file.h"
#include "coordinator/store/prepare_data.h"
#include "run/tokens/token_file.h"
#include "tests/support/temp_dir.h"

namespace longhaul::coordinator {
namespace {

using ::longhaul::testing::TempDir;
using ::testing::HasSubstr;

size_t FilesIn(const std::string& folder) {
  size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    count += entry.is_regular_file() ? 1 : 0;
  }
  return count;
}

class BlobStoreTest : public ::testing::Test {
 protected:
  BlobStoreTest() : blobs_(*BlobStore::Open(folder_.path() + "/blobs")) {}

  std::string Put(const std::string& bytes) {
    std::string sha256 = Sha256Hex(bytes);
    auto upload = blobs_->StartUpload(sha256, bytes.size());
    EXPECT_TRUE(upload.ok()) << upload.status();
    EXPECT_TRUE((*upload)->Append(bytes).ok());
    EXPECT_TRUE((*upload)->Finish().ok());
    return sha256;
  }
  size_t Files() const { return FilesIn(folder_.path() + "/blobs"); }

  TempDir folder_;
  std::unique_ptr<BlobStore> blobs_;
};

TEST_F(BlobStoreTest, WhatWasUploadedCanBeRead) {
  const std::string bytes = "some text of the corpus";
  const std::string sha256 = Sha256Hex(bytes);
  EXPECT_FALSE(blobs_->Has(sha256));
  auto upload = blobs_->StartUpload(sha256, bytes.size());
  ASSERT_TRUE(upload.ok());
  ASSERT_TRUE((*upload)->Append(bytes.substr(0, 5)).ok());
  ASSERT_TRUE((*upload)->Append(bytes.substr(5)).ok());
  EXPECT_FALSE(blobs_->Has(sha256));
  ASSERT_TRUE((*upload)->Finish().ok());
  EXPECT_TRUE(blobs_->Has(sha256));

  const auto reader = blobs_->OpenBlob(sha256);
  ASSERT_TRUE(reader.ok());
  EXPECT_EQ(reader->size(), bytes.size());
  EXPECT_EQ(*reader->ReadAt(5, 4), bytes.substr(5, 4));
  EXPECT_EQ(*reader->ReadAt(20, 100), bytes.substr(20));
  EXPECT_EQ(*reader->ReadAt(bytes.size(), 100), "");
  EXPECT_EQ(*reader->ReadAt(bytes.size() + 5, 100), "");
}

TEST_F(BlobStoreTest, AnEmptyFileIsABlobToo) {
  const std::string sha256 = Put("");
  EXPECT_EQ(blobs_->OpenBlob(sha256)->size(), 0u);
}

TEST_F(BlobStoreTest, WrongHashLeavesNothing) {
  {
    auto upload = blobs_->StartUpload(Sha256Hex("expected"), 5);
    ASSERT_TRUE((*upload)->Append("other").ok());
    EXPECT_EQ((*upload)->Finish().code(), absl::StatusCode::kDataLoss);
  }
  EXPECT_FALSE(blobs_->Has(Sha256Hex("expected")));
  EXPECT_EQ(Files(), 0u);
}

TEST_F(BlobStoreTest, WrongSizeIsRefused) {
  auto longer = blobs_->StartUpload(Sha256Hex("12345"), 3);
  EXPECT_EQ((*longer)->Append("12345").code(), absl::StatusCode::kInvalidArgument);
  auto shorter = blobs_->StartUpload(Sha256Hex("12345"), 7);
  ASSERT_TRUE((*shorter)->Append("12345").ok());
  const Status status = (*shorter)->Finish();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(Message(status)), HasSubstr("7 bytes were announced, 5 came"));
}

TEST_F(BlobStoreTest, OnlyHashesAreNames) {
  for (const std::string& name :
       {std::string("../store.db"), std::string(), std::string(64, 'A')}) {
    EXPECT_EQ(blobs_->StartUpload(name, 1).status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(blobs_->OpenBlob(name).status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_FALSE(blobs_->Has(name));
  }
  EXPECT_EQ(blobs_->OpenBlob(std::string(64, 'a')).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(BlobStoreTest, AnUploadThatCannotFitIsRefusedAtOnce) {
  const auto upload = blobs_->StartUpload(std::string(64, 'a'), 1ull << 60);
  EXPECT_EQ(upload.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(Files(), 0u);
}

TEST_F(BlobStoreTest, UploadsUnderWayShareTheDisk) {
  const auto space = std::filesystem::space(folder_.path());
  const uint64_t half = space.available / 5 * 3;
  {
    const auto first = blobs_->StartUpload(std::string(64, 'a'), half);
    ASSERT_TRUE(first.ok()) << first.status();
    const auto second = blobs_->StartUpload(std::string(64, 'b'), half);
    EXPECT_EQ(second.status().code(), absl::StatusCode::kResourceExhausted);
  }
  EXPECT_TRUE(blobs_->StartUpload(std::string(64, 'b'), half).ok());
}

TEST_F(BlobStoreTest, SoManyUploadsAtATime) {
  std::vector<std::unique_ptr<BlobUpload>> uploads;
  for (size_t i = 0; i < BlobStore::kMaxUploads; ++i) {
    uploads.push_back(*blobs_->StartUpload(std::string(64, 'a'), 1));
  }
  EXPECT_EQ(blobs_->StartUpload(std::string(64, 'a'), 1).status().code(),
            absl::StatusCode::kResourceExhausted);
  uploads.pop_back();
  EXPECT_TRUE(blobs_->StartUpload(std::string(64, 'a'), 1).ok());
}

TEST_F(BlobStoreTest, OpeningRemovesWhatAnInterruptedUploadLeft) {
  Put("kept");
  ASSERT_TRUE(WriteFileAtomic(blobs_->TemporaryPath(), "half of a blob").ok());
  EXPECT_EQ(Files(), 2u);
  const auto again = BlobStore::Open(folder_.path() + "/blobs");
  EXPECT_EQ(Files(), 1u);
  EXPECT_TRUE((*again)->Has(Sha256Hex("kept")));
}

struct Follower : public BlobFollower {
  void Added(const std::string&, uint64_t) override {}
  void Removed(const std::string& sha256) override { removed.push_back(sha256); }
  std::vector<std::string> removed;
};

TEST_F(BlobStoreTest, ADamagedBlobIsSaidAndMakesRoomForAnother) {
  const std::string bytes = "the contents of a shard";
  const std::string sha256 = Put(bytes);
  EXPECT_EQ(blobs_->Check(sha256), absl::OkStatus());
  const auto follower = std::make_shared<Follower>();
  blobs_->SetFollower(follower);
  std::string changed = bytes;
  changed[3] = static_cast<char>(changed[3] ^ 1);
  ASSERT_TRUE(WriteFileAtomic(blobs_->PathOf(sha256), changed).ok());
  const Status damaged = blobs_->Check(sha256);
  EXPECT_EQ(damaged.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(Message(damaged)), HasSubstr("its contents changed"));
  EXPECT_EQ(blobs_->Check(sha256).code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(follower->removed.empty());  // a standby's copy may be whole
  EXPECT_EQ(Put(bytes), sha256);
  EXPECT_EQ(blobs_->Check(sha256), absl::OkStatus());
}

TEST_F(BlobStoreTest, RemovingTwiceIsRemovingOnce) {
  const std::string sha256 = Put("no longer needed"), other = Put("still needed");
  EXPECT_EQ(blobs_->Remove(sha256), absl::OkStatus());
  EXPECT_EQ(blobs_->Remove(sha256), absl::OkStatus());
  EXPECT_FALSE(blobs_->Has(sha256));
  EXPECT_TRUE(blobs_->Has(other));
  EXPECT_EQ(blobs_->Remove("../store.db").code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(BlobStoreTest, PreparedDataIsABlobMadeOnce) {
  const std::string cache = folder_.path() + "/prepared";
  const auto preparer = DataPreparer::Open(cache, blobs_.get());
  ASSERT_TRUE(preparer.ok());
  command::PrepareData request{.run = RunId("r"), .tokenizer = "bytes", .validation_share = 0.25};
  for (const std::string text : {"first file, ", "second file."}) {
    v1::DataFile& file = request.files.emplace_back();
    file.set_sha256(Put(text));
    file.set_bytes(text.size());
  }
  const auto data = preparer->Prepare(request);
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ(data->tokens, 24u);
  EXPECT_EQ(data->validation_tokens, 6u);
  EXPECT_EQ(data->text_bytes, 24u);
  EXPECT_EQ(data->tokenizer, "bytes");
  EXPECT_GE(data->vocabulary, 256u);
  EXPECT_TRUE(TokenFile::Open(blobs_->PathOf(data->token_file_sha256), true).ok());

  // Known: made of nothing, even when the text is gone.
  std::filesystem::remove(blobs_->PathOf(request.files[0].sha256()));
  EXPECT_EQ(preparer->Prepare(request)->token_file_sha256, data->token_file_sha256);
  EXPECT_EQ(FilesIn(cache), 1u);

  // Another share is another file, and needs the text.
  request.validation_share = 0.5;
  const auto missing = preparer->Prepare(request);
  EXPECT_EQ(missing.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(Message(missing.status())), HasSubstr("submit the run again"));
}

}  // namespace
}  // namespace longhaul::coordinator
