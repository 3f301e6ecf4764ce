// What the CLI asks: runs from submission to their end, blobs, streams.
#include <fmt/core.h>
#include <gmock/gmock.h>

#include <thread>
#include <type_traits>
#include <vector>

#include "run/tokens/token_file.h"
#include "tests/unit/coordinator/rpc/fake_worker.h"

namespace longhaul::coordinator {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

std::string Letters(size_t size) {
  std::string bytes(size, '\0');
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<char>('a' + i * i % 23);
  return bytes;
}

class ControlTest : public RpcTest {
 protected:
  grpc::Status Fetch(const std::string& sha256, uint64_t offset, std::string* bytes) {
    CallContext context;
    v1::FetchBlobRequest request;
    request.set_sha256(sha256);
    request.set_offset(offset);
    const auto reader = workers_->FetchBlob(&context.grpc, request);
    grpc::Status status;
    for (const v1::BlobChunk& chunk : ReadAll<v1::BlobChunk>(reader, &status)) {
      *bytes += chunk.data();
      total_bytes_ = chunk.total_bytes();
    }
    return status;
  }
  uint64_t total_bytes_ = 0;
};

TEST_F(ControlTest, EveryCallNeedsTheToken) {
  Start();
  const auto refused = [](const grpc::Status& status) {
    EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAUTHENTICATED);
    EXPECT_THAT(status.error_message(), HasSubstr("--token-file"));
  };
  const std::string wrong = "another token of thirty-two char";
  // All at once, because each answer comes late.
  std::vector<std::jthread> calls;
  const auto unary = [&](auto method, const auto& request, auto reply) {
    calls.emplace_back([this, &refused, &wrong, method, request, reply]() mutable {
      CallContext context(wrong);
      refused((control_.get()->*method)(&context.grpc, request, &reply));
    });
  };
  using Stub = v1::ControlService::Stub;
  unary(&Stub::Info, v1::InfoRequest(), v1::InfoReply());
  unary(&Stub::MissingBlobs, v1::MissingBlobsRequest(), v1::MissingBlobsReply());
  unary(&Stub::Submit, v1::SubmitRequest(), v1::SubmitReply());
  unary(&Stub::PlanRun, v1::SubmitRequest(), v1::PlanReply());
  unary(&Stub::ListRuns, v1::ListRunsRequest(), v1::ListRunsReply());
  unary(&Stub::GetRun, v1::RunRequest(), v1::RunStatus());
  unary(&Stub::StopRun, v1::StopRequest(), v1::StopReply());
  unary(&Stub::SetReplicas, v1::ReplicasRequest(), v1::ReplicasReply());
  unary(&Stub::ListWorkers, v1::ListWorkersRequest(), v1::ListWorkersReply());
  unary(&Stub::ListCheckpoints, v1::CheckpointsRequest(), v1::CheckpointsReply());
  const auto stream = [&](const auto& message, auto method, const auto& request) {
    using Message = std::decay_t<decltype(message)>;
    calls.emplace_back([this, &refused, &wrong, method, request] {
      CallContext context(wrong);
      grpc::Status status;
      ReadAll<Message>((control_.get()->*method)(&context.grpc, request), &status);
      refused(status);
    });
  };
  stream(v1::RunStatus(), &Stub::WatchRun, v1::RunRequest());
  stream(v1::Event(), &Stub::ListEvents, v1::EventsRequest());
  stream(v1::LogEntry(), &Stub::ListLogs, v1::LogsRequest());
  stream(v1::StepRecord(), &Stub::ListSteps, v1::StepsRequest());
  const auto upload = [&](auto* stub, auto method) {
    calls.emplace_back([stub, method, &refused, &wrong] {
      CallContext context(wrong);
      v1::UploadReply reply;
      const auto writer = (stub->*method)(&context.grpc, &reply);
      refused(writer->Finish());
    });
  };
  upload(control_.get(), &Stub::UploadBlob);
  upload(workers_.get(), &v1::WorkerService::Stub::StoreShard);
  calls.emplace_back([&] {
    CallContext context(wrong);
    grpc::Status status;
    ReadAll<v1::BlobChunk>(workers_->FetchBlob(&context.grpc, {}), &status);
    refused(status);
  });
}

TEST_F(ControlTest, BlobsGoUpAndComeDown) {
  Start();
  const std::string bytes = Letters(2'500'000), sha256 = Sha256Hex(bytes);
  v1::MissingBlobsRequest ask;
  ask.add_sha256(sha256);
  ask.add_sha256(Sha256Hex("something else"));
  const auto missing = [&] {
    CallContext context;
    v1::MissingBlobsReply reply;
    EXPECT_TRUE(control_->MissingBlobs(&context.grpc, ask, &reply).ok());
    return reply.sha256_size();
  };
  EXPECT_EQ(missing(), 2);
  ASSERT_TRUE(Upload(sha256, bytes.size(), bytes, 700'000).ok());
  EXPECT_EQ(missing(), 1);
  // Again: it is known, and the rest need not be sent.
  EXPECT_TRUE(Upload(sha256, bytes.size(), bytes, 700'000).ok());

  for (const uint64_t offset : {uint64_t{0}, uint64_t{1'234'567}, uint64_t{bytes.size()}}) {
    std::string fetched;
    ASSERT_TRUE(Fetch(sha256, offset, &fetched).ok());
    EXPECT_EQ(fetched, bytes.substr(offset));
    EXPECT_EQ(total_bytes_, bytes.size());
  }
  std::string nothing;
  EXPECT_EQ(Fetch(sha256, bytes.size() + 1, &nothing).error_code(), grpc::StatusCode::OUT_OF_RANGE);
  EXPECT_EQ(Fetch(Sha256Hex("unknown"), 0, &nothing).error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(Fetch("../store.db", 0, &nothing).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(ControlTest, DamagedUploadsAreRefused) {
  Start();
  const std::string bytes = Letters(100'000), sha256 = Sha256Hex(bytes);
  EXPECT_EQ(Upload(Sha256Hex("other"), bytes.size(), bytes).error_code(),
            grpc::StatusCode::DATA_LOSS);
  EXPECT_EQ(Upload(sha256, bytes.size() - 1, bytes).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(Upload(sha256, bytes.size() + 1, bytes).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(Upload("../../etc/passwd", 1, "x").error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(Upload(sha256, uint64_t{1} << 60, bytes).error_code(),
            grpc::StatusCode::RESOURCE_EXHAUSTED);
  const std::string large(kMaxMessageBytes + 1, 'x');
  EXPECT_EQ(Upload(Sha256Hex(large), large.size(), large, large.size()).error_code(),
            grpc::StatusCode::RESOURCE_EXHAUSTED);
  {
    CallContext context;
    v1::UploadReply reply;
    const auto writer = control_->UploadBlob(&context.grpc, &reply);
    writer->WritesDone();
    EXPECT_EQ(writer->Finish().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  }
  EXPECT_TRUE(std::filesystem::is_empty(options_.state_dir + "/blobs"));
}

TEST_F(ControlTest, AShardThatNobodyAskedForIsRefused) {
  Start();
  const std::string bytes = Letters(1000);
  CallContext context;
  v1::UploadReply reply;
  const auto writer = workers_->StoreShard(&context.grpc, &reply);
  v1::UploadChunk chunk;
  chunk.set_sha256(Sha256Hex(bytes));
  chunk.set_total_bytes(bytes.size());
  chunk.set_data(bytes);
  writer->Write(chunk);
  writer->WritesDone();
  const grpc::Status status = writer->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(status.error_message(), HasSubstr("nobody has asked for a copy"));
  EXPECT_TRUE(std::filesystem::is_empty(options_.state_dir + "/shard-copies"));
}

TEST_F(ControlTest, CheckpointsAreListedAndVerified) {
  Start();
  FakeWorker a(server_->address(), "a"), b(server_->address(), "b");
  Submit(SmallSpec("tiny", 2));
  v1::RunRequest watched;
  watched.set_run("tiny");
  CallContext watch_context;
  ReadAll<v1::RunStatus>(control_->WatchRun(&watch_context.grpc, watched));  // to its end
  const auto list = [&](const std::string& run, bool verify) {
    v1::CheckpointsRequest request;
    request.set_run(run);
    request.set_verify(verify);
    v1::CheckpointsReply reply;
    CallContext context;
    const grpc::Status status = control_->ListCheckpoints(&context.grpc, request, &reply);
    EXPECT_EQ(status.ok(), run == "tiny") << status.error_message();
    return reply;
  };
  const v1::CheckpointsReply listed = list("tiny", false);
  ASSERT_EQ(listed.checkpoints_size(), 1);
  EXPECT_EQ(listed.checkpoints(0).step(), 4u);
  EXPECT_EQ(listed.checkpoints(0).state(), "committed");
  EXPECT_EQ(listed.checkpoints(0).layers_size(), 2);
  const v1::CheckpointsReply verified = list("tiny", true);
  ASSERT_EQ(verified.checkpoints_size(), 1);
  EXPECT_EQ(verified.checkpoints(0).state(), "whole");
  list("no-such-run", true);
}

TEST_F(ControlTest, WrongRunFilesAreRefusedWithEveryError) {
  Start();
  v1::SubmitRequest request = SubmitOfText(SmallSpec("tiny", 1));
  v1::SubmitReply reply;
  const auto submit = [&](const v1::SubmitRequest& one) {
    CallContext context;
    return control_->Submit(&context.grpc, one, &reply);
  };
  v1::SubmitRequest wrong = request;
  wrong.set_run_yaml(request.run_yaml() + "\nbogus: 1\n");
  wrong.add_overrides("links.forward=nonsense");
  grpc::Status status = submit(wrong);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("bogus"));
  EXPECT_THAT(status.error_message(), HasSubstr("nonsense"));

  wrong = request;
  wrong.mutable_data_files(0)->set_sha256(Sha256Hex("never uploaded"));
  status = submit(wrong);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(status.error_message(), HasSubstr("corpus.txt"));

  wrong = request;
  wrong.mutable_data_files(0)->set_bytes(1);
  EXPECT_EQ(submit(wrong).error_code(), grpc::StatusCode::FAILED_PRECONDITION);

  wrong = request;
  wrong.clear_data_files();
  EXPECT_EQ(submit(wrong).error_code(), grpc::StatusCode::INVALID_ARGUMENT);

  CallContext context;
  v1::ListRunsReply runs;
  ASSERT_TRUE(control_->ListRuns(&context.grpc, {}, &runs).ok());
  EXPECT_EQ(runs.runs_size(), 0);
}

TEST_F(ControlTest, ARunFromSubmissionToItsEnd) {
  Start();
  FakeWorker a(server_->address(), "a"), b(server_->address(), "b");
  const std::string run = Submit(SmallSpec("tiny", 2));
  EXPECT_THAT(run, ::testing::MatchesRegex("tiny-[a-z0-9]{6}"));

  CallContext watch_context;
  v1::RunRequest request;
  request.set_run("tiny");
  const auto seen = ReadAll<v1::RunStatus>(control_->WatchRun(&watch_context.grpc, request));
  ASSERT_FALSE(seen.empty());
  EXPECT_EQ(seen.back().state(), "done") << seen.back().reason();
  EXPECT_EQ(seen.back().run_id(), run);
  EXPECT_EQ(seen.back().step(), 4u);
  for (const v1::RunStatus& status : seen) EXPECT_FALSE(status.has_plan());
  for (size_t i = 1; i < seen.size(); ++i) EXPECT_GT(seen[i].sequence(), seen[i - 1].sequence());

  CallContext get_context;
  v1::RunStatus status;
  ASSERT_TRUE(control_->GetRun(&get_context.grpc, request, &status).ok());
  EXPECT_EQ(status.plan().assignment().cells_size(), 2);
  const std::string token_file = status.plan().assignment().data().token_file_sha256();
  EXPECT_TRUE(TokenFile::Open(options_.state_dir + "/blobs/" + token_file, true).ok());

  CallContext steps_context;
  v1::StepsRequest steps_request;
  steps_request.set_run(run);
  steps_request.set_after_step(1);
  const auto steps =
      ReadAll<v1::StepRecord>(control_->ListSteps(&steps_context.grpc, steps_request));
  ASSERT_EQ(steps.size(), 3u);
  EXPECT_EQ(steps[0].step(), 2u);
  EXPECT_NEAR(steps[2].loss(), 4.6, 1e-9);

  CallContext logs_context;
  v1::LogsRequest logs_request;
  logs_request.set_run(run);
  logs_request.set_follow(true);  // ends: the run has
  const auto logs = ReadAll<v1::LogEntry>(control_->ListLogs(&logs_context.grpc, logs_request));
  EXPECT_EQ(logs.size(), 2u);

  CallContext events_context;
  v1::EventsRequest events_request;
  events_request.set_run(run);
  events_request.set_follow(true);
  std::vector<std::string> kinds;
  for (const v1::Event& event :
       ReadAll<v1::Event>(control_->ListEvents(&events_context.grpc, events_request))) {
    EXPECT_EQ(event.run_id(), run);
    kinds.push_back(event.kind());
  }
  EXPECT_THAT(kinds, Contains("state"));
  EXPECT_THAT(kinds, Contains("checkpoint"));

  // A new process over the same directory knows it all.
  server_.reset();
  Start();
  CallContext again_context;
  v1::ListRunsReply runs;
  ASSERT_TRUE(control_->ListRuns(&again_context.grpc, {}, &runs).ok());
  ASSERT_EQ(runs.runs_size(), 1);
  EXPECT_EQ(runs.runs(0).run_id(), run);
  EXPECT_EQ(runs.runs(0).state(), "done");
  EXPECT_EQ(runs.runs(0).checkpoint_step(), 4u);
}

TEST_F(ControlTest, APlanStartsNothing) {
  Start();
  FakeWorker a(server_->address(), "a");
  CallContext events_context;
  v1::EventsRequest events;
  events.set_follow(true);
  const auto reader = control_->ListEvents(&events_context.grpc, events);
  v1::Event joined;
  ASSERT_TRUE(reader->Read(&joined));  // the worker is there

  CallContext context;
  v1::PlanReply reply;
  const grpc::Status status =
      control_->PlanRun(&context.grpc, SubmitOfText(SmallSpec("tiny", 1)), &reply);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(reply.plan().assignment().cells_size(), 1);
  EXPECT_FALSE(reply.plan().explanation().empty());
  CallContext list_context;
  v1::ListRunsReply runs;
  ASSERT_TRUE(control_->ListRuns(&list_context.grpc, {}, &runs).ok());
  EXPECT_EQ(runs.runs_size(), 0);
  events_context.grpc.TryCancel();
  grpc::Status end;
  ReadAll<v1::Event>(reader, &end);
  EXPECT_EQ(end.error_code(), grpc::StatusCode::CANCELLED);
}

TEST_F(ControlTest, AQueuedRunIsWatchedAndStopped) {
  Start();
  const std::string run = Submit(SmallSpec("tiny", 2));
  CallContext watch_context;
  v1::RunRequest request;
  request.set_run(run);
  const auto watch = control_->WatchRun(&watch_context.grpc, request);
  v1::RunStatus status;
  ASSERT_TRUE(watch->Read(&status));
  EXPECT_EQ(status.state(), "queued");
  EXPECT_FALSE(status.reason().empty());

  CallContext stop_context;
  v1::StopRequest stop;
  stop.set_run(run);
  v1::StopReply stopped;
  ASSERT_TRUE(control_->StopRun(&stop_context.grpc, stop, &stopped).ok());
  const auto rest = ReadAll<v1::RunStatus>(watch);
  ASSERT_FALSE(rest.empty());
  EXPECT_EQ(rest.back().state(), "stopped");

  CallContext unknown_context;
  stop.set_run("nobody");
  EXPECT_EQ(control_->StopRun(&unknown_context.grpc, stop, &stopped).error_code(),
            grpc::StatusCode::NOT_FOUND);
}

// Also where the coordinator was started anew meanwhile: the answer is stored with the change.
TEST_F(ControlTest, ACallThatIsMadeAgainDoesNothingTwice) {
  Start();
  const std::string run = Submit(SmallSpec("tiny", 2));
  v1::StopRequest stop;
  stop.set_run("tiny");
  stop.set_request_id("the stop of this test");
  v1::StopReply stopped;
  {
    CallContext refused;
    EXPECT_EQ(control_->StopRun(&refused.grpc, stop, &stopped).error_code(),
              grpc::StatusCode::INVALID_ARGUMENT);  // an id has no spaces
  }
  stop.set_request_id("the-stop-of-this-test");
  v1::RemoveRunRequest remove;
  remove.set_run("tiny");
  remove.set_request_id("the-removal-of-this-test");
  v1::RemoveRunReply removed;
  for (const bool again : {false, true}) {
    CallContext stop_context, remove_context;
    grpc::Status status = control_->StopRun(&stop_context.grpc, stop, &stopped);
    ASSERT_TRUE(status.ok()) << status.error_message();
    EXPECT_EQ(stopped.message(), run + " is stopped");
    EXPECT_EQ(stopped.stored().repeated(), again);
    status = control_->RemoveRun(&remove_context.grpc, remove, &removed);
    ASSERT_TRUE(status.ok()) << status.error_message();
    EXPECT_EQ(removed.run_id(), run);
    EXPECT_EQ(removed.stored().repeated(), again);
    if (again) break;
    EXPECT_EQ(removed.stored().where(), v1::Stored::HERE);
    server_.reset();
    Start();
  }
  CallContext other_context;
  remove.set_run("another");
  EXPECT_EQ(control_->RemoveRun(&other_context.grpc, remove, &removed).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(ControlTest, UnknownRunsAreNotFound) {
  Start();
  CallContext get, watch, logs, steps, events;
  v1::RunRequest run;
  run.set_run("nobody");
  v1::RunStatus status;
  EXPECT_EQ(control_->GetRun(&get.grpc, run, &status).error_code(), grpc::StatusCode::NOT_FOUND);
  grpc::Status end;
  ReadAll<v1::RunStatus>(control_->WatchRun(&watch.grpc, run), &end);
  EXPECT_EQ(end.error_code(), grpc::StatusCode::NOT_FOUND);
  v1::LogsRequest logs_request;
  logs_request.set_run("nobody");
  ReadAll<v1::LogEntry>(control_->ListLogs(&logs.grpc, logs_request), &end);
  EXPECT_EQ(end.error_code(), grpc::StatusCode::NOT_FOUND);
  v1::StepsRequest steps_request;
  steps_request.set_run("nobody");
  ReadAll<v1::StepRecord>(control_->ListSteps(&steps.grpc, steps_request), &end);
  EXPECT_EQ(end.error_code(), grpc::StatusCode::NOT_FOUND);
  v1::EventsRequest events_request;
  events_request.set_run("nobody");
  ReadAll<v1::Event>(control_->ListEvents(&events.grpc, events_request), &end);
  EXPECT_EQ(end.error_code(), grpc::StatusCode::NOT_FOUND);
}

TEST_F(ControlTest, StoppingEndsStreamsWithASentence) {
  Start();
  CallContext context;
  v1::RunRequest request;
  request.set_run(Submit(SmallSpec("tiny", 2)));
  const auto watch = control_->WatchRun(&context.grpc, request);
  v1::RunStatus status;
  ASSERT_TRUE(watch->Read(&status));
  EXPECT_TRUE(server_->Stop(absl::Seconds(30)));
  grpc::Status end;
  ReadAll<v1::RunStatus>(watch, &end);
  EXPECT_EQ(end.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(end.error_message(), HasSubstr("shutting down"));
}

// The state hears of a stream that breaks only as of a worker that left, not of a coordinator that
// goes: the run is there, as it was, when the next one starts.
TEST_F(ControlTest, StoppingTheCoordinatorFailsNoRun) {
  Start();
  std::string run;
  {
    Session session(server_->address());
    session.SayHello(HelloOf("a"));
    v1::WorkerCommand command;
    ASSERT_TRUE(session.Hear(&command));
    run = Submit(SmallSpec("tiny", 1));
    ASSERT_TRUE(session.Hear(&command));
    EXPECT_TRUE(command.has_measure());
    server_.reset();
  }
  Start();
  CallContext context;
  v1::RunRequest request;
  request.set_run(run);
  v1::RunStatus status;
  ASSERT_TRUE(control_->GetRun(&context.grpc, request, &status).ok());
  EXPECT_NE(status.state(), "failed") << status.reason();
}

}  // namespace
}  // namespace longhaul::coordinator
