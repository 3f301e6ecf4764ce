// Descriptions of checkpoints in object stores: their bytes, and what of a stranger's is refused.
#include "run/stored/stored_checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "run/plan/proto/plan_proto.h"
#include "tests/support/golden.h"

namespace longhaul::stored {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

v1::StoredCheckpoint Good() {
  v1::StoredCheckpoint checkpoint;
  checkpoint.set_format(kFormat);
  checkpoint.set_version("1.2.3");
  checkpoint.set_piece_bytes(4);
  checkpoint.set_run_yaml("name: tiny\n");
  v1::DataFile& text = *checkpoint.add_data_files();
  text.set_name("a \"text\".txt");
  text.set_sha256(std::string(64, 'c'));
  text.set_bytes(uint64_t{1} << 60);
  v1::CheckpointManifest& manifest = *checkpoint.mutable_manifest();
  manifest.set_format(kManifestFormat);
  manifest.set_run_id("tiny-abc234");
  manifest.set_epoch(2);
  manifest.set_step(50);
  manifest.set_microbatches(400);
  manifest.set_committed_unix_ms(1'700'000'000'000);
  for (uint32_t stage = 0; stage < 2; ++stage) {
    v1::Cell& cell = *manifest.add_cells();
    cell.mutable_id()->set_stage(stage);
    cell.set_first_layer(2 * stage);
    cell.set_layers(2);
    v1::CheckpointFile& file = *manifest.add_files();
    file.set_name("stage-" + std::to_string(stage) + ".params.safetensors");
    file.set_stage(stage);
    file.set_bytes(10);
    file.set_sha256(std::string(64, static_cast<char>('a' + stage)));
  }
  return checkpoint;
}

TEST(StoredCheckpoint, IsReadAsItIsWritten) {
  const std::string json = ToJson(Good());
  const auto read = FromJson(json);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(ToJson(*read), json);
  longhaul::testing::ExpectGolden(GOLDEN_DIR, "checkpoint.json", kFormat, json);
}

TEST(StoredCheckpoint, WhatANewerVersionAddsIsLeftOut) {
  std::string json = ToJson(Good());
  json.insert(1, "\"new\": {\"thing\": [1, 2]},");
  EXPECT_TRUE(FromJson(json).ok()) << FromJson(json).status();
}

TEST(StoredCheckpoint, LongFilesLieInPieces) {
  const v1::CheckpointFile file = Good().manifest().files(0);
  EXPECT_THAT(PiecesOf(file, 10), ElementsAre(Piece{"stage-0.params.safetensors", 0, 10}));
  EXPECT_THAT(PiecesOf(file, 4), ElementsAre(Piece{"stage-0.params.safetensors.part-00000", 0, 4},
                                             Piece{"stage-0.params.safetensors.part-00001", 4, 4},
                                             Piece{"stage-0.params.safetensors.part-00002", 8, 2}));
  v1::StoredFolder folder;
  folder.set_address("s3://b/r/step-00000050/");
  folder.set_piece_bytes(4);
  const std::string part = folder.address() + "stage-0.params.safetensors.part-0000";
  EXPECT_TRUE(IsObjectOf(part + "2", file, folder));
  EXPECT_FALSE(IsObjectOf(part + "3", file, folder));
  EXPECT_FALSE(IsObjectOf(folder.address() + file.name(), file, folder));
  EXPECT_FALSE(
      IsObjectOf("s3://b/r/step-00000051/stage-0.params.safetensors.part-00000", file, folder));
}

TEST(StoredCheckpoint, FoldersAreNamedByRunAndStep) {
  EXPECT_EQ(FolderOfRun("s3://b/p", "r"), "s3://b/p/r/");
  EXPECT_EQ(FolderOfRun("s3://b/p/", "r"), "s3://b/p/r/");
  EXPECT_EQ(FolderOfStep("s3://b/p/r/", 50), "s3://b/p/r/step-00000050/");
  EXPECT_EQ(StepOf("step-00000050"), 50u);
  EXPECT_EQ(StepOf("step-50"), 50u);
  for (const char* name : {"step-", "step-5x", "step--5", "50", "", "step-99999999999999999999"}) {
    EXPECT_EQ(StepOf(name), std::nullopt) << name;
  }
}

struct Bad {
  const char* what;
  std::function<void(v1::StoredCheckpoint&)> spoil;
  const char* expected;
};

TEST(StoredCheckpoint, WhatCannotBeIsRefused) {
  const auto file = [](v1::StoredCheckpoint& one) -> v1::CheckpointFile& {
    return *one.mutable_manifest()->mutable_files(0);
  };
  const auto cell = [](v1::StoredCheckpoint& one) -> v1::Cell& {
    return *one.mutable_manifest()->mutable_cells(1);
  };
  const std::vector<Bad> all = {
      {"another folder", [&](auto& one) { file(one).set_name("../a.safetensors"); },
       "names of files"},
      {"a hidden file", [&](auto& one) { file(one).set_name(".a.safetensors"); }, "names of files"},
      {"an escape", [&](auto& one) { file(one).set_name("a%2Fb.safetensors"); }, "names of files"},
      {"the description", [&](auto& one) { file(one).set_name("checkpoint.json"); },
       "names of files"},
      {"one name twice", [&](auto& one) { file(one).set_name("stage-1.params.safetensors"); },
       "is there twice"},
      {"no hash", [&](auto& one) { file(one).set_sha256("abc"); }, "expected a SHA-256"},
      {"too long", [&](auto& one) { file(one).set_bytes(uint64_t{1} << 60); }, "cannot have"},
      {"too many pieces", [&](auto& one) { file(one).set_bytes(100'000); }, "cannot have"},
      {"empty", [&](auto& one) { file(one).set_bytes(0); }, "cannot have"},
      {"of no stage", [&](auto& one) { file(one).set_stage(7); }, "has no stage 7"},
      {"of another run", [&](auto& one) { file(one).set_run_id("../x"); }, "id of a run"},
      {"no pieces", [](auto& one) { one.set_piece_bytes(0); }, "piece_bytes"},
      {"no files", [](auto& one) { one.mutable_manifest()->clear_files(); }, "1 to"},
      {"no cells", [](auto& one) { one.mutable_manifest()->clear_cells(); }, "the split"},
      {"a gap", [&](auto& one) { cell(one).set_first_layer(3); }, "one layer after the other"},
      {"no layers", [&](auto& one) { cell(one).set_layers(0); }, "one layer after the other"},
      {"endless", [&](auto& one) { cell(one).set_layers(UINT32_MAX); },
       "one layer after the other"},
      {"a stage twice", [&](auto& one) { cell(one).mutable_id()->set_stage(0); },
       "expected a split"},
      {"replicas apart", [&](auto& one) { cell(one).mutable_id()->set_replica(4'000'000); },
       "expected a split"},
      {"step 0", [](auto& one) { one.mutable_manifest()->set_step(0); }, "from 1 on"},
      {"interim", [](auto& one) { one.mutable_manifest()->set_interim(true); }, "recovery alone"},
      {"a run's id", [](auto& one) { one.mutable_manifest()->set_run_id("a/b"); }, "id of a run"},
      {"no run file", [](auto& one) { one.clear_run_yaml(); }, "a run file"},
      {"a text", [](auto& one) { one.mutable_data_files(0)->set_sha256("x"); },
       "expected a SHA-256"},
      {"format 0", [](auto& one) { one.set_format(0); }, "expected format"},
      {"a newer format", [](auto& one) { one.set_format(kFormat + 1); }, "install version 1.2.3"},
  };
  for (const Bad& bad : all) {
    v1::StoredCheckpoint one = Good();
    bad.spoil(one);
    const auto read = FromJson(ToJson(one));
    ASSERT_FALSE(read.ok()) << bad.what;
    EXPECT_THAT(std::string(read.status().message()), HasSubstr(bad.expected)) << bad.what;
  }
  for (const char* text :
       {"", "{", "[]", "null", "{\"format\": -1}", "{\"manifest\": 3}", "\xff"}) {
    EXPECT_FALSE(FromJson(text).ok()) << text;
  }
}

}  // namespace
}  // namespace longhaul::stored
