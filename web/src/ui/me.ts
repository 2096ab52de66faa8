// The signed-in user, for parts that depend on rights. The API decides; the page only hides what it
// would refuse.
import { createContext, useContext } from "react";
import type { Me } from "../api/types";

export const MeContext = createContext<Me | null>(null);

export function useMe(): Me {
  const me = useContext(MeContext);
  if (me === null) throw new Error("MeContext is missing above");
  return me;
}
