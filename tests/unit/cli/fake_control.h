// A coordinator's ControlService in this process, with canned answers, on loopback.
#pragma once

#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "longhaul/v1/control.grpc.pb.h"

namespace longhaul::cli {

// Set the answers before the first call; read what came after the last one.
class FakeControl : public v1::ControlService::Service {
 public:
  // Listens on a free port, or on `port` again after Stop.
  void Start(int port = 0) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:" + std::to_string(port), grpc::InsecureServerCredentials(),
                             &port_);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
  }
  // Ends the server with all streams under way.
  void Stop() {
    {
      const std::lock_guard lock(mutex);
      stopping = true;
    }
    changed.notify_all();
    if (server_) server_->Shutdown(std::chrono::system_clock::now());
    server_.reset();
    stopping = false;
  }
  ~FakeControl() override { Stop(); }
  int port() const { return port_; }
  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }

  grpc::Status Info(grpc::ServerContext* context, const v1::InfoRequest*,
                    v1::InfoReply* reply) override {
    ++infos;
    *reply = info;
    return standby ? Standby() : Check(*context);
  }
  grpc::Status MissingBlobs(grpc::ServerContext* context, const v1::MissingBlobsRequest* request,
                            v1::MissingBlobsReply* reply) override {
    if (grpc::Status status = Check(*context); !status.ok()) return status;
    if (before_missing_blobs) before_missing_blobs();
    for (const std::string& hash : request->sha256()) {
      if (!blobs.contains(hash)) reply->add_sha256(hash);
    }
    return grpc::Status::OK;
  }
  grpc::Status UploadBlob(grpc::ServerContext*, grpc::ServerReader<v1::UploadChunk>* reader,
                          v1::UploadReply*) override {
    v1::UploadChunk chunk;
    std::string hash;
    while (reader->Read(&chunk)) {
      if (!chunk.sha256().empty()) hash = chunk.sha256();
      blobs[hash] += chunk.data();
      ++chunks;
    }
    return grpc::Status::OK;
  }
  grpc::Status Submit(grpc::ServerContext*, const v1::SubmitRequest* request,
                      v1::SubmitReply* reply) override {
    submitted = *request;
    request_ids.push_back(request->request_id());
    *reply = submit_reply;
    return submit_status;
  }
  grpc::Status PlanRun(grpc::ServerContext*, const v1::SubmitRequest* request,
                       v1::PlanReply* reply) override {
    submitted = *request;
    *reply->mutable_plan() = plan;
    return grpc::Status::OK;
  }
  grpc::Status ListRuns(grpc::ServerContext* context, const v1::ListRunsRequest* request,
                        v1::ListRunsReply* reply) override {
    if (standby) return Standby();
    if (grpc::Status status = Check(*context); !status.ok()) return status;
    for (const v1::RunStatus& run : runs) *reply->add_runs() = run;
    list_request = *request;
    if (request->has_most_ended()) reply->set_ended_left_out(ended_left_out);
    return grpc::Status::OK;
  }
  grpc::Status GetRun(grpc::ServerContext*, const v1::RunRequest* request,
                      v1::RunStatus* reply) override {
    if (before_get_run) before_get_run();
    for (const v1::RunStatus& run : runs) {
      if (run.run_id() != request->run()) continue;
      *reply = run;
      return grpc::Status::OK;
    }
    return {grpc::StatusCode::NOT_FOUND, "there is no run '" + request->run() + "'"};
  }
  // Sends `watched`, then ends, waits until cancelled, or is cut off.
  grpc::Status WatchRun(grpc::ServerContext* context, const v1::RunRequest* request,
                        grpc::ServerWriter<v1::RunStatus>* writer) override {
    std::unique_lock lock(mutex);
    watch_requests.push_back(request->run());
    const bool later = watch_requests.size() > 1 && !watched_later.empty();
    for (const v1::RunStatus& run : later ? watched_later : watched) writer->Write(run);
    if (cut_first_watch && watch_requests.size() == 1) {
      return {grpc::StatusCode::UNAVAILABLE, "going down"};
    }
    changed.notify_all();
    while (hold_watch && !stopping && !context->IsCancelled()) {
      changed.wait_for(lock, std::chrono::milliseconds(20));
    }
    return grpc::Status::OK;
  }
  grpc::Status StopRun(grpc::ServerContext*, const v1::StopRequest* request,
                       v1::StopReply* reply) override {
    request_ids.push_back(request->request_id());
    if (lost_answers > 0) {
      --lost_answers;
      return {grpc::StatusCode::UNAVAILABLE, "Socket closed"};
    }
    reply->mutable_stored()->set_repeated(request_ids.size() > 1);
    reply->set_message(request->run() + (request->now() ? " stops now" : " stops after its step"));
    return grpc::Status::OK;
  }
  grpc::Status SetReplicas(grpc::ServerContext*, const v1::ReplicasRequest* request,
                           v1::ReplicasReply* reply) override {
    reply->set_message(request->run() + " goes on with " + std::to_string(request->replicas()));
    return grpc::Status::OK;
  }
  grpc::Status ListEvents(grpc::ServerContext*, const v1::EventsRequest*,
                          grpc::ServerWriter<v1::Event>* writer) override {
    for (const v1::Event& event : events) writer->Write(event);
    return grpc::Status::OK;
  }
  grpc::Status ListLogs(grpc::ServerContext*, const v1::LogsRequest*,
                        grpc::ServerWriter<v1::LogEntry>* writer) override {
    if (standby) return Standby();
    for (const v1::LogEntry& entry : logs) writer->Write(entry);
    if (!cut_logs) return grpc::Status::OK;
    standby = true;
    return {grpc::StatusCode::UNAVAILABLE, "going down"};
  }
  grpc::Status ListWorkers(grpc::ServerContext*, const v1::ListWorkersRequest*,
                           v1::ListWorkersReply* reply) override {
    for (const v1::WorkerStatus& worker : workers) *reply->add_workers() = worker;
    for (const v1::MeasuredLink& link : links) *reply->add_links() = link;
    return grpc::Status::OK;
  }
  grpc::Status ListCheckpoints(grpc::ServerContext*, const v1::CheckpointsRequest* request,
                               v1::CheckpointsReply* reply) override {
    *reply = checkpoints;
    reply->set_run_id(request->run());
    reply->set_verified(request->verify());
    return grpc::Status::OK;
  }
  grpc::Status TraceRun(grpc::ServerContext*, const v1::TraceRequest* request,
                        v1::TraceReply* reply) override {
    trace_request = *request;
    *reply = trace;
    return grpc::Status::OK;
  }
  grpc::Status ListSteps(grpc::ServerContext*, const v1::StepsRequest* request,
                         grpc::ServerWriter<v1::StepRecord>* writer) override {
    for (const v1::StepRecord& step : steps) {
      if (request->has_after_step() && step.step() <= request->after_step()) continue;
      writer->Write(step);
    }
    return grpc::Status::OK;
  }

  std::string token;  // "": none is asked for
  std::map<std::string, std::string> blobs;
  int chunks = 0;
  v1::InfoReply info;
  std::vector<std::string> request_ids;  // of Submit and StopRun
  int lost_answers = 0;                  // so many calls of StopRun are done, and not answered
  v1::SubmitRequest submitted;
  v1::SubmitReply submit_reply;
  grpc::Status submit_status;
  v1::Plan plan;
  v1::ListRunsRequest list_request;
  uint32_t ended_left_out = 0;
  std::vector<v1::RunStatus> runs, watched;
  std::vector<v1::RunStatus> watched_later;  // to all but the first WatchRun, if any
  std::vector<v1::Event> events;
  std::vector<v1::LogEntry> logs;
  std::vector<v1::WorkerStatus> workers;
  std::vector<v1::MeasuredLink> links;
  std::vector<v1::StepRecord> steps;
  v1::CheckpointsReply checkpoints;
  v1::TraceRequest trace_request;
  v1::TraceReply trace;
  bool cut_first_watch = false;
  // To ListLogs: all `logs`, and then it serves no more.
  bool cut_logs = false;
  // Says so to Info, ListRuns and ListLogs.
  std::atomic<bool> standby{false};
  std::atomic<int> infos{0};
  // Called first by MissingBlobs and GetRun, to change the answers between two calls.
  std::function<void()> before_missing_blobs, before_get_run;

  std::mutex mutex;
  std::condition_variable changed;
  bool hold_watch = false, stopping = false;  // guarded by mutex
  std::vector<std::string> watch_requests;    // guarded by mutex

 private:
  static grpc::Status Standby() {
    return {grpc::StatusCode::UNAVAILABLE,
            "this is the standby of h:7070, which it has not taken over"};
  }
  grpc::Status Check(const grpc::ServerContext& context) const {
    if (token.empty()) return grpc::Status::OK;
    const auto& metadata = context.client_metadata();
    const auto it = metadata.find("authorization");
    const bool good = it != metadata.end() &&
                      std::string(it->second.data(), it->second.size()) == "Bearer " + token;
    return good ? grpc::Status::OK
                : grpc::Status(grpc::StatusCode::UNAUTHENTICATED, "the token is wrong");
  }

  std::unique_ptr<grpc::Server> server_;
  int port_ = 0;
};

}  // namespace longhaul::cli
