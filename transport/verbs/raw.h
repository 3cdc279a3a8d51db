// What a measurement of devices without a transport needs of this folder, and all that it may
// include: opening a port, queue pairs of either kind, membership of a group, a device's pacing,
// errors as sentences. Backends include the parts.
#pragma once

#include "transport/verbs/device_port.h"
#include "transport/verbs/explain.h"
#include "transport/verbs/group_join.h"
#include "transport/verbs/pacing.h"
#include "transport/verbs/reliable.h"
#include "transport/verbs/ud_queue_pair.h"
#include "transport/verbs/verbs_address.h"
#include "transport/verbs/work_id.h"
