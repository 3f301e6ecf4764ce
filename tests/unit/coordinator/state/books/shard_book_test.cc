// Who is asked about which shards, and which answers count.
#include "coordinator/state/books/shard_book.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "tests/unit/coordinator/state/books/now.h"

namespace longhaul::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

using Purpose = ShardCheck::Purpose;

// Three cells of two layers each, on workers a, b and c, each with one file.
v1::CheckpointManifest Manifest() {
  v1::CheckpointManifest manifest;
  manifest.set_step(4);
  for (uint32_t stage = 0; stage < 3; ++stage) {
    const std::string worker(1, static_cast<char>('a' + stage));
    v1::Cell& cell = *manifest.add_cells();
    cell.mutable_id()->set_stage(stage);
    cell.set_worker_id(worker);
    cell.set_first_layer(2 * stage);
    cell.set_layers(2);
    v1::CheckpointFile& file = *manifest.add_files();
    file.set_name("stage-" + std::to_string(stage));
    file.set_sha256("sha of " + worker);
    file.set_bytes(10 + stage);
    file.set_stage(stage);
    AddHolder(worker, worker, &file);
  }
  return manifest;
}

std::string Names(const std::vector<v1::CheckpointFile>& files) {
  std::string names;
  for (const v1::CheckpointFile& file : files) names += file.name() + " ";
  return names;
}

Cell CellOf(const std::string& worker, uint32_t first, uint32_t count) {
  return {.worker = WorkerId(worker), .layers = {first, count}};
}

ShardCheck About(Purpose purpose, uint64_t request = 0) {
  return {.purpose = purpose,
          .request = RequestId(request),
          .run = RunId("tiny-1"),
          .epoch = Epoch(2),
          .step = 4};
}

class ShardBookTest : public ::testing::Test {
 protected:
  // b is not connected.
  const ConnectedWorkers connected = [](const WorkerId& id) -> std::optional<Incarnation> {
    if (id == WorkerId("b")) return std::nullopt;
    return Incarnation(id.value() + "-1");
  };
  // Begins one check of a worker's file.
  uint64_t Ask(const std::string& worker, ShardCheck check) {
    check.worker = WorkerId(worker);
    check.incarnation = Incarnation(worker + "-1");
    check.files = {Manifest().files(0)};
    return book.Begin(std::move(check), kNow);
  }
  static v1::WorkerMessage AnswerTo(uint64_t id) {
    v1::WorkerMessage message;
    message.set_run_id("tiny-1");
    message.set_epoch(2);
    message.mutable_shards_checked()->set_check(id);
    return message;
  }
  bool IsTaken(const std::string& worker, const std::string& incarnation,
               const v1::WorkerMessage& message) {
    return book.TakeAnswered(WorkerId(worker), Incarnation(incarnation), message).has_value();
  }
  ShardBook book;
};

TEST_F(ShardBookTest, EverybodyWhoIsConnectedHashesWhatTheyHave) {
  v1::CheckpointManifest manifest = Manifest();
  EXPECT_THAT(HoldersOf(manifest), ElementsAre("a", "b", "c"));
  EXPECT_THAT(ChecksOf(manifest, About(Purpose::kResume), connected), SizeIs(2));
  AddHolder("", "", manifest.mutable_files(1));
  const std::vector<ShardCheck> checks = ChecksOf(manifest, About(Purpose::kResume), connected);
  ASSERT_THAT(checks, SizeIs(3));
  EXPECT_EQ(checks[0].worker, std::nullopt);  // the coordinator
  EXPECT_EQ(Names(checks[0].files), "stage-1 ");
  EXPECT_EQ(checks[1].worker, WorkerId("a"));
  EXPECT_EQ(checks[1].incarnation, Incarnation("a-1"));
  EXPECT_EQ(Names(checks[1].files), "stage-0 ");
  EXPECT_EQ(checks[2].worker, WorkerId("c"));
  for (const ShardCheck& check : checks) {
    EXPECT_FALSE(check.copy);
    EXPECT_EQ(check.step, 4u);
    EXPECT_EQ(check.epoch, Epoch(2));
  }
}

TEST_F(ShardBookTest, CopiesAreAskedOfThoseWhoHoldTheFiles) {
  const v1::CheckpointManifest manifest = Manifest();
  const std::vector<v1::CheckpointFile> files(manifest.files().begin(), manifest.files().end());
  const std::vector<ShardCheck> checks = CopyChecksOf(files, About(Purpose::kCopy), connected);
  ASSERT_THAT(checks, SizeIs(2));
  EXPECT_EQ(checks[0].worker, WorkerId("a"));
  EXPECT_EQ(checks[1].worker, WorkerId("c"));
  EXPECT_TRUE(checks[0].copy && checks[1].copy);
  EXPECT_EQ(Names(checks[1].files), "stage-2 ");
}

TEST(FilesOfCell, AreThoseWhoseWritersHeldItsLayers) {
  v1::CheckpointManifest manifest;
  uint32_t first = 0;
  for (const uint32_t layers : {1, 3, 2, 2}) {
    v1::Cell& cell = *manifest.add_cells();
    cell.mutable_id()->set_stage(static_cast<uint32_t>(manifest.cells_size()) - 1);
    cell.set_first_layer(first);
    cell.set_layers(layers);
    manifest.add_files()->set_stage(cell.id().stage());
    first += layers;
  }
  const auto stages_of = [&](uint32_t begin, uint32_t layers) {
    std::vector<uint32_t> stages;
    for (const v1::CheckpointFile& file : FilesOfCell(manifest, CellOf("z", begin, layers))) {
      stages.push_back(file.stage());
    }
    return stages;
  };
  EXPECT_THAT(stages_of(0, 8), ElementsAre(0u, 1u, 2u, 3u));
  EXPECT_THAT(stages_of(0, 4), ElementsAre(0u, 1u));
  EXPECT_THAT(stages_of(4, 4), ElementsAre(2u, 3u));
  EXPECT_THAT(stages_of(0, 5), ElementsAre(0u, 1u, 2u));
  EXPECT_THAT(stages_of(5, 1), ElementsAre(2u));
  EXPECT_THAT(stages_of(7, 1), ElementsAre(3u));
  // Tables are of the boundary below layer 3, where that is one still.
  manifest.mutable_files(1)->set_name("stage-1.tables.safetensors");
  EXPECT_THAT(stages_of(0, 4), ElementsAre(0u, 1u));
  EXPECT_THAT(stages_of(4, 1), ElementsAre(1u, 2u));
  EXPECT_THAT(stages_of(0, 8), ElementsAre(0u, 2u, 3u));
  EXPECT_THAT(stages_of(1, 2), IsEmpty());
  manifest.mutable_files(0)->set_stage(9);  // of nobody
  EXPECT_THAT(stages_of(0, 1), IsEmpty());
}

TEST_F(ShardBookTest, FilesMoveThatAreNeitherAtHandNorCopied) {
  v1::CheckpointManifest manifest = Manifest();
  const auto moves = [&manifest](const std::vector<Cell>& cells) {
    std::string text;
    for (const ShardMove& move : MovesFor(manifest, cells)) {
      text += move.file.name() + " to " + move.to.value() + ", ";
    }
    return text;
  };
  const std::vector<Cell> same = {CellOf("a", 0, 2), CellOf("b", 2, 2), CellOf("c", 4, 2)};
  EXPECT_EQ(moves(same), "");
  // b takes part of what a held, d part of what c held; the file of b is for both.
  const std::vector<Cell> other = {CellOf("b", 0, 3), CellOf("d", 3, 3)};
  EXPECT_EQ(moves(other), "stage-0 to b, stage-1 to d, stage-2 to d, ");
  AddHolder("d", "d", manifest.mutable_files(2));
  EXPECT_EQ(moves(other), "stage-0 to b, stage-1 to d, ");
  AddHolder("", "", manifest.mutable_files(0));
  EXPECT_EQ(moves(other), "stage-1 to d, ");
  // What its own worker has damaged has to come from elsewhere.
  manifest.mutable_files(2)->mutable_holders(0)->set_problem("cut short");
  EXPECT_EQ(moves(same), "stage-2 to c, ");
}

TEST_F(ShardBookTest, OnlyTheAnswerOfWhoWasAskedCounts) {
  const uint64_t id = Ask("a", About(Purpose::kCopy));
  EXPECT_FALSE(IsTaken("b", "a-1", AnswerTo(id)));
  EXPECT_FALSE(IsTaken("a", "a-2", AnswerTo(id)));
  EXPECT_FALSE(IsTaken("a", "a-1", AnswerTo(id + 1)));
  v1::WorkerMessage other = AnswerTo(id);
  other.set_epoch(1);
  EXPECT_FALSE(IsTaken("a", "a-1", other));
  other = AnswerTo(id);
  other.set_run_id("other-1");
  EXPECT_FALSE(IsTaken("a", "a-1", other));
  EXPECT_FALSE(book.TakeAnsweredByCopies(id).has_value());
  EXPECT_TRUE(IsTaken("a", "a-1", AnswerTo(id)));
  EXPECT_FALSE(IsTaken("a", "a-1", AnswerTo(id)));
  EXPECT_EQ(book.Find(id), nullptr);
}

TEST_F(ShardBookTest, TheCoordinatorAnswersForItsCopies) {
  const uint64_t id = book.Begin(About(Purpose::kResume), kNow);
  EXPECT_FALSE(IsTaken("a", "", AnswerTo(id)));
  EXPECT_TRUE(book.TakeAnsweredByCopies(id).has_value());
  EXPECT_FALSE(book.Take(id).has_value());
}

TEST_F(ShardBookTest, AChecksTimeRunsOut) {
  EXPECT_EQ(book.NextWake(), MonoTime::max());
  const uint64_t id = Ask("a", About(Purpose::kCopy));
  const MonoTime until = kNow + absl::Minutes(30);
  EXPECT_EQ(book.NextWake(), until);
  EXPECT_THAT(book.Late(until + -absl::Nanoseconds(1)), IsEmpty());
  EXPECT_THAT(book.Late(until), ElementsAre(id));
  EXPECT_TRUE(book.Take(id).has_value());
  EXPECT_THAT(book.Late(until), IsEmpty());
}

TEST_F(ShardBookTest, ChecksAreFoundByWorkerRunAndContent) {
  const uint64_t one = Ask("a", About(Purpose::kResume)), two = Ask("b", About(Purpose::kVerify));
  EXPECT_THAT(book.AskedOf(WorkerId("a")), ElementsAre(one));
  EXPECT_THAT(book.AskedOf(WorkerId("b")), ElementsAre(two));
  EXPECT_TRUE(book.IsCheckingToResume(RunId("tiny-1")));
  EXPECT_FALSE(book.IsCheckingToResume(RunId("other-1")));
  book.DropResumeChecks(RunId("other-1"));
  EXPECT_NE(book.Find(one), nullptr);
  book.DropResumeChecks(RunId("tiny-1"));
  EXPECT_EQ(book.Find(one), nullptr);
  EXPECT_NE(book.Find(two), nullptr);
  EXPECT_FALSE(book.ExpectsCopy("sha of a", 10));  // nobody was asked to send it
  ShardCheck copy = About(Purpose::kCopy);
  copy.copy = true;
  Ask("a", copy);
  EXPECT_TRUE(book.ExpectsCopy("sha of a", 10));
  EXPECT_FALSE(book.ExpectsCopy("sha of a", 11));
  EXPECT_FALSE(book.ExpectsCopy("sha of b", 10));
  EXPECT_TRUE(book.ExpectsCopy("sha of a", 10, WorkerId("a")));
  EXPECT_FALSE(book.ExpectsCopy("sha of a", 10, WorkerId("b"))) << "another one was asked";
}

TEST_F(ShardBookTest, AVerificationEndsWithItsLastCheck) {
  const RequestId request(8);
  EXPECT_EQ(book.TakeVerified(request), std::nullopt);  // nobody asked
  book.BeginVerification(request);
  EXPECT_TRUE(book.IsVerifying(request));
  const ShardCheck about = About(Purpose::kVerify, 8);
  const uint64_t one = Ask("a", about), two = Ask("b", about);
  Ask("c", About(Purpose::kVerify, 9));  // of another request
  book.NoteVerified(*book.Take(one), Manifest().files(0));
  EXPECT_EQ(book.TakeVerified(request), std::nullopt);
  book.NoteVerified(About(Purpose::kResume, 8), Manifest().files(2));  // not for it
  book.Take(two);
  EXPECT_EQ(book.TakeVerified(request), VerifiedShards({{4, "a", "stage-0"}}));
  EXPECT_FALSE(book.IsVerifying(request));
}

TEST_F(ShardBookTest, AVerificationOfNobodyIsOverAtOnce) {
  book.BeginVerification(RequestId(8));
  EXPECT_EQ(book.TakeVerified(RequestId(8)), VerifiedShards());
}

}  // namespace
}  // namespace longhaul::coordinator
