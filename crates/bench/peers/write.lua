-- One reading a request in line protocol: every thread of wrk writes its own sensors, and no two
-- requests share sensor and time, so that nothing is overwritten. Counts answers other than 204.
local number = 0

function setup(thread)
   thread:set("id", number)
   number = number + 1
end

function init(args)
   requests = 0
   refused = 0
   base = tonumber(args[1])
   sensors = 500
   value = 200 + id
   -- "%d" of LuaJIT is exact only to 2^53: nanoseconds are written as seconds and a fraction.
   headers = { ["Content-Type"] = "text/plain" }
end

function request()
   requests = requests + 1
   local sensor = requests % sensors
   local second = base + math.floor(requests / sensors)
   local body = string.format("readings,sensor=t%ds%03d value=%.3f %d000000000", id, sensor, value + (requests * 7919 % 100000) / 1000, second)
   return wrk.format("POST", nil, headers, body)
end

function response(status)
   if status ~= 204 then refused = refused + 1 end
end
