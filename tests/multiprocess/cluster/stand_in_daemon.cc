// The least of a coordinator (with --listen) or of a worker (with --coordinator) that
// `longhaul cluster` can work with: workers say hello with the token, the coordinator lists those
// that are there. So the tests of the cluster itself need no training.
//
// LONGHAUL_STAND_IN_FAIL=worker2     that daemon says why and exits with 3
// LONGHAUL_STAND_IN_SILENT=worker2   that daemon runs but never connects
#include <grpcpp/grpcpp.h>
#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <set>
#include <string>

#include "base/clock.h"
#include "base/file.h"
#include "base/shutdown.h"
#include "base/token.h"
#include "longhaul/v1/control.grpc.pb.h"
#include "longhaul/v1/worker.grpc.pb.h"
#include "proto/rpc/auth.h"
#include "proto/rpc/channel.h"

namespace longhaul {
namespace {

struct Options {
  std::string listen, coordinator, token_file, state_dir, data_address, log_level, device,
      data_root;
  double memory_share = 1;
  std::string name = "coordinator";
};

bool Carries(const grpc::ServerContext& context, const std::string& token) {
  const auto found = context.client_metadata().find("authorization");
  return found != context.client_metadata().end() && found->second == "Bearer " + token;
}

struct Connected {
  std::mutex mutex;
  std::multiset<std::pair<std::string, uint32_t>> workers;  // name and process
};

class StandInControl final : public v1::ControlService::Service {
 public:
  StandInControl(std::string token, Connected* connected)
      : token_(std::move(token)), connected_(connected) {}
  grpc::Status ListWorkers(grpc::ServerContext* context, const v1::ListWorkersRequest*,
                           v1::ListWorkersReply* reply) override {
    if (!Carries(*context, token_)) return {grpc::StatusCode::UNAUTHENTICATED, "wrong token"};
    const std::lock_guard lock(connected_->mutex);
    for (const auto& [name, pid] : connected_->workers) {
      v1::WorkerStatus* worker = reply->add_workers();
      worker->set_name(name);
      worker->set_pid(pid);
      worker->set_connected(true);
    }
    return grpc::Status::OK;
  }

 private:
  const std::string token_;
  Connected* const connected_;
};

class StandInSessions final : public v1::WorkerService::Service {
 public:
  StandInSessions(std::string token, Connected* connected)
      : token_(std::move(token)), connected_(connected) {}
  grpc::Status Session(
      grpc::ServerContext* context,
      grpc::ServerReaderWriter<v1::WorkerCommand, v1::WorkerMessage>* stream) override {
    if (!Carries(*context, token_)) return {grpc::StatusCode::UNAUTHENTICATED, "wrong token"};
    v1::WorkerMessage message;
    if (!stream->Read(&message)) return grpc::Status::OK;
    const std::pair worker(message.hello().name(), message.hello().pid());
    {
      const std::lock_guard lock(connected_->mutex);
      connected_->workers.insert(worker);
    }
    while (stream->Read(&message)) {
    }
    const std::lock_guard lock(connected_->mutex);
    connected_->workers.erase(connected_->workers.find(worker));
    return grpc::Status::OK;
  }

 private:
  const std::string token_;
  Connected* const connected_;
};

int RunCoordinator(const Options& options, const std::string& token) {
  Connected connected;
  StandInControl control(token, &connected);
  StandInSessions sessions(token, &connected);
  grpc::ServerBuilder builder;
  ConfigureServer(&builder);
  builder.AddListeningPort(options.listen, PlainServer());
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.RegisterService(&control);
  builder.RegisterService(&sessions);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr) {
    std::fprintf(stderr, "cannot listen on %s\n", options.listen.c_str());
    return 1;
  }
  WaitForShutdownSignal(absl::InfiniteDuration());
  server->Shutdown(absl::ToChronoTime(absl::Now() + absl::Milliseconds(100)));
  return 0;
}

int RunWorker(const Options& options, const std::string& token) {
  const std::string worker_id = RandomUuid();
  const std::string incarnation = RandomUuid();
  while (true) {
    auto stub = v1::WorkerService::NewStub(MakeChannel(options.coordinator));
    grpc::ClientContext context;
    AddToken(&context, token);
    context.set_wait_for_ready(true);
    auto stream = stub->Session(&context);
    v1::WorkerMessage message;
    v1::Hello* hello = message.mutable_hello();
    hello->set_protocol_min(9);
    hello->set_protocol_max(9);
    hello->set_worker_id(worker_id);
    hello->set_incarnation(incarnation);
    hello->set_name(options.name);
    v1::DataEndpoint* endpoint = hello->add_endpoints();
    endpoint->set_transport("ucx");
    endpoint->add_addresses(options.data_address);
    hello->set_pid(static_cast<uint32_t>(getpid()));
    v1::Device* device = hello->add_devices();
    device->set_kind("cpu");
    device->set_memory_bytes(1 << 30);
    device->set_cores(1);
    stream->Write(message);
    v1::WorkerCommand command;
    while (stream->Read(&command)) {
    }
    if (stream->Finish().error_code() == grpc::StatusCode::UNAUTHENTICATED) return 1;
  }
}

bool Named(const char* variable, const std::string& name) {
  const char* value = std::getenv(variable);
  return value != nullptr && name == value;
}

int Main(int argc, char** argv) {
  Options options;
  CLI::App app("stand-in daemon");
  app.add_option("--listen", options.listen);
  app.add_option("--coordinator", options.coordinator);
  app.add_option("--token-file", options.token_file)->required();
  app.add_flag("--insecure")->required();
  app.add_option("--state-dir", options.state_dir)->required();
  app.add_option("--name", options.name);
  app.add_option("--data-address", options.data_address);
  app.add_option("--log-level", options.log_level);
  app.add_option("--device", options.device);
  app.add_option("--memory-share", options.memory_share);
  app.add_option("--data-root", options.data_root);
  CLI11_PARSE(app, argc, argv);
  if (Named("LONGHAUL_STAND_IN_FAIL", options.name)) {
    std::fprintf(stderr, "the reason why %s fails\n", options.name.c_str());
    return 3;
  }
  if (!MakeDirectories(options.state_dir).ok()) return 1;
  if (!options.device.empty()) {
    std::fprintf(stderr, "computes on %s, %g of its memory\n", options.device.c_str(),
                 options.memory_share);
  }
  if (options.listen.empty() && Named("LONGHAUL_STAND_IN_SILENT", options.name)) {
    while (true) pause();
  }
  const StatusOr<std::string> token = LoadToken(options.token_file);
  if (!token.ok()) {
    std::fprintf(stderr, "%s\n", std::string(Message(token.status())).c_str());
    return 1;
  }
  if (options.listen.empty()) return RunWorker(options, *token);
  BlockShutdownSignals();
  return RunCoordinator(options, *token);
}

}  // namespace
}  // namespace longhaul

int main(int argc, char** argv) {
  return longhaul::Main(argc, argv);
}
