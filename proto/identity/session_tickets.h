// TLS session tickets: a client may resume a session with one, which no client of ours does.
#pragma once

namespace longhaul {

// Has TLS servers of this process make no session tickets. Call it once, in main(), before other
// threads use TLS. A failure is only logged.
void LeaveOutSessionTickets();

}  // namespace longhaul
