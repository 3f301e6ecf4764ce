// Two coordinators and a witness in the test's process, over real connections.
#pragma once

#include <fmt/core.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <thread>

#include "base/file.h"
#include "base/hash.h"
#include "base/unique_fd.h"
#include "coordinator/rpc/server.h"
#include "coordinator/standby/follower.h"
#include "longhaul/v1/control.grpc.pb.h"
#include "longhaul/v1/member.grpc.pb.h"
#include "proto/member/access.h"
#include "proto/rpc/channel.h"
#include "proto/rpc/status.h"
#include "proto/witness/witness.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/coordinator/store/store_dump.h"

namespace longhaul::coordinator {

inline constexpr absl::Duration kPatience = absl::Seconds(30);
// More than a leader's beats, which come each second.
inline constexpr absl::Duration kShortLease = absl::Milliseconds(2500);

class FollowTest : public ::testing::Test {
 protected:
  std::string Dir(const std::string& name) const { return folder_.path() + "/" + name; }
  ServerOptions Options(const std::string& name) const {
    ServerOptions options{.listen = "127.0.0.1:0", .state_dir = Dir(name)};
    options.state.version = "1";
    return options;
  }
  static std::unique_ptr<CoordinatorServer> Serve(const ServerOptions& options) {
    auto server = CoordinatorServer::Start(options);
    EXPECT_TRUE(server.ok()) << server.status();
    return server.ok() ? *std::move(server) : nullptr;
  }
  // Free when this was called. Its coordinator asks a standby at the address that it said.
  static std::string FreeAddress() {
    const UniqueFd socket(::socket(AF_INET, SOCK_STREAM, 0));
    sockaddr_in address{.sin_family = AF_INET};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof(address);
    auto* const raw = reinterpret_cast<sockaddr*>(&address);
    EXPECT_EQ(::bind(socket.get(), raw, length), 0);
    EXPECT_EQ(::getsockname(socket.get(), raw, &length), 0);
    return fmt::format("127.0.0.1:{}", ntohs(address.sin_port));
  }
  FollowerOptions Following(const std::string& address, const std::string& name = "standby") const {
    return {.peer = address,
            .listen = FreeAddress(),
            .state_dir = Dir(name),
            .token_file = Dir("first") + "/token",
            .version = "1",
            .lease = kShortLease};
  }
  static std::unique_ptr<Follower> Follow(const FollowerOptions& options) {
    auto follower = Follower::Start(options);
    EXPECT_TRUE(follower.ok()) << follower.status();
    return follower.ok() ? *std::move(follower) : nullptr;
  }

  // What follows is compared with each look of 20 ms: files of another thread tell no event.
  static bool Becomes(const std::function<bool()>& condition) {
    const Deadline deadline = Deadline::After(kPatience);
    while (!condition()) {
      if (deadline.Expired()) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    return true;
  }
  // The coordinator's answer.
  v1::LeadershipInfo LeadsAt(const std::string& address) {
    if (watcher_ == nullptr || watcher_->address() != address) watcher_ = Join(address, "watcher");
    const auto stub = v1::ControlService::NewStub(watcher_->Dial().channel);
    grpc::ClientContext context;
    v1::InfoReply reply;
    const Status status = FromGrpc(stub->Info(&context, {}, &reply));
    EXPECT_TRUE(status.ok()) << status;
    return reply.leadership();
  }
  // Whether a standby (the one that listens there) has everything that `server` has.
  bool IsFollowed(const CoordinatorServer& server, const std::string& by = "") {
    const v1::LeadershipInfo leads = LeadsAt(server.address());
    return leads.standby().state() == v1::LeadershipInfo::Standby::IN_SYNC &&
           (by.empty() || leads.standby().address() == by);
  }
  bool InSync(const std::string& name) const {
    return ReadLeadership(Dir(name)).value().seat.in_sync.size() == 2;
  }
  // A third voter, which joins at `first`.
  std::unique_ptr<witness::Witness> Watch(const std::string& first, const std::string& second) {
    const auto admin = Join(first, "maker");
    const auto stub = v1::MemberService::NewStub(admin->Dial().channel);
    grpc::ClientContext context;
    v1::CreateTokenRequest request;
    v1::CreateTokenReply reply;
    request.set_role("witness");
    request.set_uses(1);
    const Status status = FromGrpc(stub->CreateToken(&context, request, &reply));
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_TRUE(WriteFileAtomic(Dir("witness-token"), reply.token() + "\n", 0600).ok());
    auto started = witness::Witness::Start({.coordinators = {first, second},
                                            .state_dir = Dir("witness"),
                                            .token_file = Dir("witness-token"),
                                            .name = "witness",
                                            .version = "1",
                                            .lease = kShortLease});
    EXPECT_TRUE(started.ok()) << started.status();
    return started.ok() ? *std::move(started) : nullptr;
  }
  std::shared_ptr<Access> Join(const std::string& address, const std::string& name) const {
    auto access = Access::Open({.addresses = {address},
                                .token_file = Dir("first") + "/token",
                                .credentials_file = Dir(name + ".pem"),
                                .name = name},
                               kPatience);
    EXPECT_TRUE(access.ok()) << access.status();
    return access.ok() ? *access : nullptr;
  }
  // OK: it is stored, here and there.
  static Status Upload(const Access& access, const std::string& bytes) {
    const auto stub = v1::ControlService::NewStub(access.Dial().channel);
    grpc::ClientContext context;
    v1::UploadReply reply;
    const auto writer = stub->UploadBlob(&context, &reply);
    v1::UploadChunk chunk;
    chunk.set_sha256(Sha256Hex(bytes));
    chunk.set_total_bytes(bytes.size());
    chunk.set_data(bytes);
    writer->Write(chunk);
    writer->WritesDone();
    return FromGrpc(writer->Finish());
  }
  std::set<std::string> Blobs(const std::string& name) const {
    std::set<std::string> blobs;
    for (const auto& entry : std::filesystem::directory_iterator(Dir(name) + "/blobs")) {
      blobs.insert(entry.path().filename().string());
    }
    return blobs;
  }
  // A standby applies a change when it hears that the change is committed.
  void ExpectSameStores(const std::string& a, const std::string& b) const {
    EXPECT_TRUE(Becomes([&] {
      return DumpStore(Dir(a) + "/store.db") == DumpStore(Dir(b) + "/store.db");
    })) << DumpStore(Dir(a) + "/store.db")
        << "\n----\n"
        << DumpStore(Dir(b) + "/store.db");
  }

  testing::TempDir folder_;
  std::shared_ptr<Access> watcher_;
};

}  // namespace longhaul::coordinator
