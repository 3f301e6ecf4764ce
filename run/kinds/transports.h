// The transports that carry links between workers, one row of traits each. Pure; any thread. Code
// that treats transports differently asks for a trait. A new transport is a value of the enum and
// its row here, a folder in transport/p2p and its row in transport/p2p/registry/registry.cc.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace longhaul {

enum class TransportKind : uint8_t { kUcx, kTcp, kGrpc, kRelay };

struct TransportTraits {
  TransportKind kind;
  std::string_view name;   // in run files, flags, plans and hello messages
  std::string_view title;  // in sentences for people
  // Workers listen at an address, and run files may choose this transport. False: both ends dial a
  // relay, and a plan uses this transport for two workers that cannot reach each other.
  bool listens = true;
  // Bytes from strangers on its port do no harm, so it may listen at a public address. Peers may
  // also reach it at another address than its own (port mapping).
  bool faces_strangers = false;
  // Works over IPv6. UCX 1.13's TCP writes past its buffers there, and ends both processes.
  bool takes_ipv6 = true;
};

// In the order in which a worker gives them addresses, and in which `transport: auto` prefers them.
inline constexpr std::array kTransports = {
    TransportTraits{
        .kind = TransportKind::kUcx, .name = "ucx", .title = "UCX", .takes_ipv6 = false},
    TransportTraits{
        .kind = TransportKind::kTcp, .name = "tcp", .title = "TCP", .faces_strangers = true},
    TransportTraits{
        .kind = TransportKind::kGrpc, .name = "grpc", .title = "gRPC", .faces_strangers = true},
    TransportTraits{
        .kind = TransportKind::kRelay, .name = "relay", .title = "a relay", .listens = false},
};

constexpr const TransportTraits& TraitsOf(TransportKind kind) {
  return kTransports[static_cast<size_t>(kind)];
}
constexpr std::string_view ToString(TransportKind kind) {
  return TraitsOf(kind).name;
}
// Null: no transport has that name.
constexpr const TransportTraits* FindTransport(std::string_view name) {
  for (const TransportTraits& row : kTransports) {
    if (row.name == name) return &row;
  }
  return nullptr;
}
// True if workers listen on this transport. True also for names that this version does not know.
constexpr bool ListensAtAnAddress(std::string_view transport) {
  const TransportTraits* const row = FindTransport(transport);
  return row == nullptr || row->listens;
}

// The transports that run files may choose.
inline std::vector<TransportKind> ListeningTransports() {
  std::vector<TransportKind> kinds;
  for (const TransportTraits& row : kTransports) {
    if (row.listens) kinds.push_back(row.kind);
  }
  return kinds;
}

static_assert(
    [] {
      for (const TransportTraits& row : kTransports) {
        if (&row != &TraitsOf(row.kind)) return false;
      }
      return true;
    }(),
    "rows stand in the order of the enum");

}  // namespace longhaul
