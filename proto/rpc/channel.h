// How this project's gRPC channels and servers are set up: credentials, keepalive, sizes. The one
// place that knows them, so that TLS can be added here.
#ifndef LONGHAUL_PROTO_RPC_CHANNEL_H_
#define LONGHAUL_PROTO_RPC_CHANNEL_H_

#include <grpcpp/channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_builder.h>

#include <cstddef>
#include <memory>
#include <string>

namespace longhaul {

// Every message that a client takes; a larger one ends its call with RESOURCE_EXHAUSTED.
inline constexpr size_t kMaxMessageBytes = 4 << 20;
// Of a stage's trace, which has thousands of spans; other reports of workers are much smaller.
inline constexpr size_t kMaxTraceBytes = 512 << 10;
// Every message that a server takes.
inline constexpr size_t kMaxRequestBytes = 2 << 20;
// Calls at a time on one connection to a server; further ones wait.
inline constexpr int kMaxCallsPerConnection = 32;
// Of a blob per message (UploadChunk, BlobChunk).
inline constexpr size_t kChunkBytes = 1 << 20;
// Of an error's text: room for every error of a run file, within the metadata's limit.
inline constexpr size_t kMaxErrorBytes = 16 << 10;

// Of every connection of the project, control and data, and of every server.
std::shared_ptr<grpc::ChannelCredentials> ClientCredentials();
std::shared_ptr<grpc::ServerCredentials> ServerCredentials();

// gRPC's own messages ("No address added", ...) from now on go to the program's log, at level
// debug: what matters of them comes back as a Status. Call once, in main().
void RouteGrpcLog();

// As many open files as the system lets this process have: every connection is one. Call once, in
// main().
void RaiseFileLimit();

// A channel with a connection of its own (not shared with other channels of the process), without
// proxies, reconnecting with back-off (0.2 s to 5 s) for as long as calls ask for it. A peer that
// vanished is noticed within 20 s. Never blocks.
std::shared_ptr<grpc::Channel> MakeChannel(const std::string& address);

// Limits and keepalive of a server; its port is a GuardedPort (guarded_port.h).
void ConfigureServer(grpc::ServerBuilder* builder);

}  // namespace longhaul

#endif  // LONGHAUL_PROTO_RPC_CHANNEL_H_
